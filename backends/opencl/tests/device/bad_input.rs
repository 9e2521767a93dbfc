//! What callers get wrong: a typed fault that names it, and everything else goes on.

use crate::{Bench, devices, memory};
use anyaccel_hal::{Arg, FaultKind, Format, Launch};

const ADD: &str = "kernel void add(global int *to, int what, local int *scratch) {
    scratch[get_local_id(0)] = what;
    to[get_global_id(0)] += scratch[get_local_id(0)];
}";

#[test]
fn a_build_that_fails_tells_its_log() {
    for device in devices() {
        let bench = Bench::new(device);
        let broken = b"kernel void broken(global int *to) { to[0] = no_such_name; }";
        let fault = bench.load(Format::OpenClC, broken, "broken").expect_err("a build that fails");
        assert_eq!(fault.kind, FaultKind::Invalid, "{fault}");
        let note = fault.note.as_deref().unwrap_or_default();
        assert!(note.contains("no_such_name"), "the log names what is wrong: {note:?}");
        for (code, entry) in [(ADD.as_bytes(), "no_such_entry"), (ADD.as_bytes(), "a\0b"), (b"", "add")] {
            let fault = bench.load(Format::OpenClC, code, entry).expect_err("a load that fails");
            assert_eq!(fault.kind, FaultKind::Invalid, "{entry:?}: {fault}");
        }
        assert_eq!(bench.load(Format::Ptx, b"x", "add").expect_err("PTX").kind, FaultKind::Unsupported);
        works(&bench);
    }
}

#[test]
fn spirv_that_is_none_is_refused() {
    for device in devices() {
        let bench = Bench::new(device);
        let spirv = bench.device.kernels().is_some_and(|kernels| kernels.formats().contains(&Format::SpirV));
        let expected = if spirv { FaultKind::Invalid } else { FaultKind::Unsupported };
        let fault = bench.load(Format::SpirV, &[0; 64], "add").expect_err("no SPIR-V");
        assert!(fault.kind == expected || spirv && fault.kind == FaultKind::Driver, "{fault}");
        works(&bench);
    }
}

/// The kernel does what it should.
fn works(bench: &Bench) {
    let kernel = bench.load(Format::OpenClC, ADD.as_bytes(), "add").expect("a kernel");
    let mem = bench.alloc(4 * 64);
    bench.upload(mem, &[0; 4 * 64]);
    let args = [memory(mem, 4 * 64), Arg::Bytes(&7_i32.to_ne_bytes()), Arg::Local(4 * 16)];
    bench.launch(kernel, Launch::linear(4, 16), &args).expect("a launch");
    let expected: Vec<u8> = [7_i32; 64].iter().flat_map(|word| word.to_ne_bytes()).collect();
    assert_eq!(bench.read(mem, 4 * 64), expected);
    bench.free(mem);
}

#[test]
fn wrong_arguments_and_sizes_are_refused_before_anything_is_enqueued() {
    for device in devices() {
        let bench = Bench::new(device);
        let kernel = bench.load(Format::OpenClC, ADD.as_bytes(), "add").expect("a kernel");
        let limits = bench.device.kernels().expect("kernels").limits();
        let mem = bench.alloc(4 * 64);
        bench.upload(mem, &[5; 4 * 64]);
        let (place, value, local) = (memory(mem, 4 * 64), Arg::Bytes(&[1, 0, 0, 0]), Arg::Local(64));
        let good = Launch::linear(1, 16);
        let threads = limits.max_threads.saturating_add(1);
        let cases: [(&str, Launch, &[Arg<'_>]); 11] = [
            ("too few arguments", good, &[place, value]),
            ("too many arguments", good, &[place, value, local, local]),
            ("a value of the wrong size", good, &[place, Arg::Bytes(&[1]), local]),
            ("a value for memory", good, &[value, value, local]),
            ("memory for a value", good, &[place, place, local]),
            ("memory for local memory", good, &[place, value, place]),
            ("too much local memory", good, &[place, value, Arg::Local(limits.max_shared as usize + 1)]),
            ("no groups", Launch { groups: [0, 1, 1], ..good }, &[place, value, local]),
            ("no threads", Launch { threads: [16, 0, 1], ..good }, &[place, value, local]),
            ("too many threads", Launch::linear(1, threads), &[place, value, local]),
            ("shared memory", Launch { shared: 16, ..good }, &[place, value, local]),
        ];
        for (what, launch, args) in cases {
            let fault = bench.launch(kernel, launch, args).expect_err(what);
            assert_eq!(fault.kind, FaultKind::Invalid, "{what}: {fault}");
            assert!(fault.note.is_some(), "{what}: {fault}");
        }
        assert_eq!(bench.read(mem, 4 * 64), [5; 4 * 64]);
        bench.free(mem);
        works(&bench);
    }
}

#[test]
fn memory_ends_where_the_device_says() {
    for device in devices() {
        let bench = Bench::new(device);
        let info = bench.device.info().clone();
        for len in [0, info.max_alloc + 1, u64::MAX] {
            let fault = bench.device.alloc(len).expect_err("a length out of bounds");
            assert_eq!(fault.kind, FaultKind::Invalid, "{len}: {fault}");
        }
        // Drivers for CPUs would go on: the total is enforced here.
        let piece = info.memory / 4;
        let all: Vec<_> = (0..4).map(|_| bench.alloc(piece)).collect();
        let fault = bench.device.alloc(piece).expect_err("memory beyond the total");
        assert_eq!(fault.kind, FaultKind::OutOfMemory, "{fault}");
        assert!(fault.note.as_deref().is_some_and(|note| note.contains(&info.memory.to_string())), "{fault}");
        all.into_iter().for_each(|mem| bench.free(mem));
        bench.free(bench.alloc(piece));
        works(&bench);
    }
}
