//! Kernels: functions of the process, and the built-in ones.

use crate::support::{Rig, at, rig, small};
use anyaccel_hal::{Arg, DType, FaultKind, HostKernel, Kernel, KernelArg, KernelSource, Launch, Pattern, WorkGroup};
use anyaccel_kernels::random::{Draw, Fill, Layout, Source};
use anyaccel_kernels::{Builtin, convert, fill_pattern, histogram};
use anyaccel_sim::Interleaving;

fn load(rig: &Rig, function: impl Fn(&WorkGroup, &[KernelArg]) + Send + Sync + 'static) -> Kernel {
    let source = KernelSource::Host(HostKernel::new(function));
    // SAFETY: each kernel here is launched with the arguments that it expects.
    unsafe { rig.devices[0].kernels().unwrap().load(source) }.unwrap()
}

/// Appends each group's linear index to the first argument, whose first byte is the count.
fn record(group: &WorkGroup, args: &[KernelArg]) {
    let linear = group.index[0] + group.groups[0] * (group.index[1] + group.groups[1] * group.index[2]);
    // SAFETY: H15: the launch gave as many bytes as there are groups, and one more; groups run one after the other.
    unsafe {
        let count = &mut *args[0].ptr;
        *count += 1;
        *args[0].ptr.add(usize::from(*count)) = linear as u8;
    }
}

#[test]
fn groups_run_once_each_in_an_order_that_the_seed_chooses() {
    let orders: Vec<_> = [Interleaving::RoundRobin, Interleaving::Seeded(1), Interleaving::Seeded(2)]
        .into_iter()
        .map(|interleaving| {
            let rig = rig(small().interleaving(interleaving));
            let (mem, stream) = (rig.d().alloc(64).mem, rig.d().stream());
            let kernel = load(&rig, record);
            rig.d().fill(stream, at(mem, 0), 0, 64).unwrap();
            let launch = Launch { groups: [3, 2, 4], threads: [8, 1, 1], shared: 0 };
            rig.d().launch(stream, kernel, launch, &[Arg::Place { place: at(mem, 8), len: 25 }]).unwrap();
            let bytes = rig.d().read(stream, at(mem, 8), 25);
            assert_eq!(bytes[0], 24);
            bytes[1..].to_vec()
        })
        .collect();
    let rising: Vec<u8> = (0..24).collect();
    assert_eq!(orders[0], rising);
    assert_ne!(orders[1], orders[2]);
    for mut order in orders {
        order.sort_unstable();
        assert_eq!(order, rising);
    }
}

#[test]
fn values_are_taken_and_local_memory_is_fresh_for_each_group() {
    let rig = rig(small());
    let (mem, stream) = (rig.d().alloc(64).mem, rig.d().stream());
    let kernel = load(&rig, |group, args| {
        // SAFETY: H15: a place of 24 bytes, a value of 8, 16 local bytes; the local ones are this group's alone.
        unsafe {
            let value = args[1].ptr.cast::<u64>();
            assert!(value.is_aligned() && args[1].len == 8 && args[2].len == 16);
            let local = &mut *args[2].ptr;
            let place = args[0].ptr.add(8 * group.index[0] as usize).cast::<u64>();
            place.write_unaligned(value.read() + u64::from(*local == 1));
            *local = 1;
        }
    });
    let value = 7u64.to_ne_bytes();
    let args = [Arg::Place { place: at(mem, 0), len: 24 }, Arg::Bytes(&value), Arg::Local(16)];
    rig.d().launch(stream, kernel, Launch::linear(3, 1), &args).unwrap();
    assert_eq!(rig.d().read(stream, at(mem, 0), 24), [value; 3].concat());
    rig.clean();
}

#[test]
fn launches_beyond_the_limits_are_refused() {
    let rig = rig(small());
    let stream = rig.d().stream();
    let kernel = load(&rig, |_, _| ());
    let launches = [
        Launch { groups: [0, 1, 1], threads: [1, 1, 1], shared: 0 },
        Launch { groups: [1, 65536, 1], threads: [1, 1, 1], shared: 0 },
        Launch { groups: [1, 1, 1], threads: [1024, 2, 1], shared: 0 },
        Launch { groups: [1, 1, 1], threads: [0, 1, 1], shared: 0 },
        Launch { groups: [1, 1, 1], threads: [1, 1, 1], shared: 49153 },
    ];
    for launch in launches {
        let fault = rig.d().launch(stream, kernel, launch, &[]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Invalid, "{launch:?}");
    }
    let fault = rig.d().launch(stream, kernel, Launch::linear(1, 1), &[Arg::Local(49153)]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Invalid);
    assert_eq!(rig.sim.pending(stream), 0);
    let code = KernelSource::Code { format: anyaccel_hal::Format::Ptx, code: b"", entry: "f" };
    // SAFETY: refused.
    let loaded = unsafe { rig.devices[0].kernels().unwrap().load(code) };
    assert_eq!(loaded.map_err(|fault| fault.kind), Err(FaultKind::Unsupported));
    assert_eq!(rig.sim.live(0).kernels, 1);
}

#[test]
fn built_ins_compute() {
    for interleaving in [Interleaving::Eager, Interleaving::Seeded(4)] {
        let rig = rig(small().interleaving(interleaving));
        let (a, b, stream) = (rig.d().alloc(4 << 20).mem, rig.d().alloc(4 << 20).mem, rig.d().stream());
        let builtin = |builtin: Builtin| rig.devices[0].builtin(builtin.number()).unwrap();
        let launch = |kernel, groups, places: &[Arg<'_>], params: &[u8]| {
            let args: Vec<_> = places.iter().copied().chain([Arg::Bytes(params)]).collect();
            rig.d().launch(stream, kernel, Launch::linear(groups, 1), &args)
        };
        let place = |mem, offset, len| Arg::Place { place: at(mem, offset), len };

        let len = 3_000_001;
        let params = fill_pattern::Params::new(fill_pattern::Pattern::new(&[1, 0, 2, 0]).unwrap(), len);
        let groups = fill_pattern::split(len).chunks();
        let pattern = builtin(Builtin::FillPattern);
        launch(pattern, groups, &[place(a, 3, len)], &params.to_bytes()).unwrap();
        // 2,000,000 x u16 to f32 does not fit; 1,000,000 do.
        rig.d().pattern(stream, at(a, 0), Pattern::byte(0).bytes(), 3).unwrap();
        let count = 1_000_000;
        let params = convert::Params::new(DType::F32, DType::U16, count);
        let places = [place(b, 0, count * 4), place(a, 3, count * 2)];
        let groups = convert::split(count).chunks();
        launch(builtin(Builtin::Convert), groups, &places, &params.to_bytes()).unwrap();
        let tail = rig.d().read(stream, at(b, 4 * (count - 2)), 8);
        assert_eq!(tail, [1f32.to_le_bytes(), 2f32.to_le_bytes()].concat());

        let data = 2_000_000;
        let groups = histogram::split(data).chunks();
        rig.d().fill(stream, at(b, 0), 0, 2048).unwrap();
        let places = [place(b, 0, 2048), place(a, 3, data)];
        launch(builtin(Builtin::Histogram), groups, &places, &histogram::Params::new(data).to_bytes()).unwrap();
        let counts = rig.d().read(stream, at(b, 0), 24);
        let expected = [1_000_000u64, 500_000, 500_000].map(u64::to_le_bytes).concat();
        assert_eq!(counts, expected);
        assert_eq!(rig.devices[0].builtin(Builtin::FillPattern.number()), Some(pattern));
        assert_eq!((rig.devices[0].builtin(0), rig.sim.live(0).kernels), (None, 0));
        rig.d().launch(stream, builtin(Builtin::Noop), Launch::linear(5, 1), &[]).unwrap();

        let draw = Draw { source: Source::Cell { delta: 4 }, layout: Layout::Portable };
        let fill = Fill::bits(DType::I32, 100_000, draw).unwrap();
        rig.d().write(stream, at(b, 4096), &[42u64.to_le_bytes(), 8u64.to_le_bytes()].concat()).unwrap();
        let places = [place(a, 0, 400_000), place(b, 4096, 16)];
        let bits = builtin(Builtin::RandomBits);
        launch(bits, fill.split().chunks(), &places, &fill.params().to_bytes()).unwrap();
        let mut expected = vec![0; 400_000];
        let value = fill.with_source(Source::Value { seed: 42, offset: 12 });
        value.run(0..100_000, &mut expected, &[]).unwrap();
        assert_eq!(rig.d().read(stream, at(a, 0), 400_000), expected);

        let places = [place(b, 0, 2048), place(a, 3, data)];
        let params = histogram::Params::new(data).to_bytes();
        let wrong = [
            launch(pattern, 1, &[], &[]),
            launch(pattern, 1, &[place(a, 0, 8)], &[0; 23]),
            launch(builtin(Builtin::Histogram), groups, &[place(b, 0, 2047), place(a, 0, data)], &params),
            launch(builtin(Builtin::Histogram), groups - 1, &places, &params),
            launch(builtin(Builtin::Histogram), groups, &[Arg::Bytes(&[1]), place(a, 0, data)], &params),
            launch(builtin(Builtin::Convert), groups, &places, &[255; 16]),
        ];
        for result in wrong {
            assert_eq!(result.map_err(|fault| fault.kind), Err(FaultKind::Invalid));
        }
        rig.d().sync(stream);
        rig.clean();
    }
}

#[test]
fn without_contents_kernels_are_not_called() {
    let rig = rig(small().address_only());
    let (mem, stream) = (rig.d().alloc(64).mem, rig.d().stream());
    let kernel = load(&rig, |_, _| panic!("called"));
    let args = [Arg::Place { place: at(mem, 0), len: 64 }];
    rig.d().launch(stream, kernel, Launch::linear(u32::MAX >> 1, 1), &args).unwrap();
    rig.d().sync(stream);
    // 10 ns a group.
    assert!(rig.sim.now() > 21_000_000_000);
    rig.clean();
}
