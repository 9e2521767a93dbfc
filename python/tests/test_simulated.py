"""The simulated device, which has sensors and no memory that the host could see."""


def test_simulated_device(script):
    script(
        """
        import anyaccel, pytest
        from anyaccel import accelerator as a
        assert a.current_accelerator() == anyaccel.device("sim")
        x = anyaccel.tensor([1.0, 2.0], device="sim:0")
        assert x.tolist() == [1.0, 2.0] and x.to(anyaccel.int32).fill_(3).tolist() == [3, 3]
        assert a.memory_allocated() > 0
        for sensor in (a.utilization, a.memory_usage, a.temperature, a.power_draw, a.clock_rate):
            assert isinstance(sensor(), float)
        with pytest.raises(BufferError): x.__dlpack__()
        with pytest.raises(BufferError): x.__dlpack_device__()
        with anyaccel.Stream():
            graph = a.Graph()
            with graph: x.fill_(4.0)
            graph.replay()
            assert x.tolist() == [4.0, 4.0]
        with pytest.raises(ValueError, match="host doesn't match the current accelerator sim."): a.current_stream("host")
        a.synchronize()
        """,
        ANYACCEL_BACKEND="sim",
    )
