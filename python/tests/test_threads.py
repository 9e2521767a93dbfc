"""Everything from many threads."""

import threading

import anyaccel
from anyaccel import accelerator


def run(work, count=8):
    errors = []

    def safely(number):
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=safely, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not errors, errors


def test_current_state_is_a_threads_own():
    def work(number):
        assert accelerator.current_device_index() == 0
        device = number % 2
        stream = anyaccel.Stream(device)
        for _ in range(200):
            with stream:
                assert accelerator.current_stream() == stream and accelerator.current_device_index() == device
                with accelerator.device_index(1 - device):
                    assert accelerator.current_device_index() == 1 - device
            assert accelerator.current_device_index() == 0

    run(work)


def test_memory_from_many_threads():
    def work(number):
        with anyaccel.Stream(number % 2):
            for value in range(50):
                x = anyaccel.full((256,), float(value), device=number % 2)
                y = x.to(1 - number % 2)
                assert y.tolist()[0] == x.tolist()[-1] == float(value)

    run(work)
    accelerator.synchronize(0), accelerator.synchronize(1)


def test_one_tensor_from_many_threads():
    x = anyaccel.zeros(1000, device=0)
    pinned = anyaccel.zeros(1000, pin_memory=True)

    def work(number):
        for _ in range(30):
            x.fill_(number)
            pinned.copy_(x)
            pinned.tolist()
            x.copy_(pinned)

    run(work)


def test_graphs_captured_side_by_side():
    def work(number):
        x = anyaccel.zeros(16, device=0)
        accelerator.current_stream().synchronize()
        with anyaccel.Stream.reserved():
            for value in range(5):
                graph = accelerator.Graph()
                graph.capture_begin()
                x.fill_(value)
                graph.capture_end()
                graph.replay()
                assert x.tolist() == [float(value)] * 16

    run(work, 4)


def test_generators_from_many_threads():
    def work(number):
        for _ in range(50):
            anyaccel.empty(8, device=0).uniform_()
            accelerator.random.get_rng_state()

    accelerator.random.manual_seed(0)
    run(work)
    assert accelerator.random.get_rng_state_offset() == 8 * 50 * 8
