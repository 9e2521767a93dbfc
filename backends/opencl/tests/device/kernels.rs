//! Kernels of users: OpenCL C in every form of memory, SPIR-V where the device takes it.

use crate::{Bench, at, devices, memory};
use anyaccel_hal::{Arg, FaultKind, Format, Launch};
use anyaccel_kernels::device::{Program, spirv::Module};
use anyaccel_kernels::histogram;

const SET: &str = "kernel void set(global uchar *to, uchar what) { to[get_global_id(0)] = what; }";

#[test]
fn arguments_are_taken_at_the_launch() {
    for device in devices() {
        let bench = Bench::new(device);
        let kernel = bench.load(Format::OpenClC, SET.as_bytes(), "set").expect("a kernel");
        let step = bench.device.info().place_alignment.max(64);
        let mem = bench.alloc(100 * step);
        let gate = bench.device.gates().expect("gates");
        let closed = gate.create().expect("a gate");
        // SAFETY: H1: gate and stream are live and of this device.
        unsafe { gate.wait(bench.stream, closed) }.expect("a wait");
        for round in 0..100_u8 {
            let what = [round];
            let place = Arg::Place { place: at(mem, u64::from(round) * step), len: step };
            bench.launch(kernel, Launch::linear(1, step as u32), &[place, Arg::Bytes(&what)]).expect("a launch");
        }
        // SAFETY: H1, as above; the gate is used no more.
        unsafe {
            gate.open(closed).expect("the gate to open");
            gate.destroy(closed);
        }
        let expected: Vec<u8> = (0..100).flat_map(|round| vec![round; step as usize]).collect();
        assert_eq!(bench.read(mem, expected.len()), expected);
        bench.free(mem);
    }
}

#[test]
fn three_dimensions_reach_the_kernel() {
    const WHERE: &str = "kernel void whereabouts(global uint *to) {
        size_t x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
        to[x + get_global_size(0) * (y + get_global_size(1) * z)] = x | y << 8 | z << 16;
    }";
    for device in devices() {
        let bench = Bench::new(device);
        let kernel = bench.load(Format::OpenClC, WHERE.as_bytes(), "whereabouts").expect("a kernel");
        for (groups, threads) in [([3, 1, 1], [4, 1, 1]), ([3, 2, 1], [2, 4, 1]), ([2, 3, 4], [2, 1, 2])] {
            let [x, y, z]: [u32; 3] = std::array::from_fn(|axis| groups[axis] * threads[axis]);
            let len = 4 * u64::from(x * y * z);
            let mem = bench.alloc(len);
            bench.launch(kernel, Launch { groups, threads, shared: 0 }, &[memory(mem, len)]).expect("a launch");
            let all = (0..z).flat_map(|z| (0..y).flat_map(move |y| (0..x).map(move |x| x | y << 8 | z << 16)));
            let expected: Vec<u8> = all.flat_map(u32::to_ne_bytes).collect();
            assert_eq!(bench.read(mem, len as usize), expected);
            bench.free(mem);
        }
    }
}

#[test]
fn threads_launch_one_kernel_at_once() {
    for device in devices() {
        let bench = Bench::new(device);
        let kernel = bench.load(Format::OpenClC, SET.as_bytes(), "set").expect("a kernel");
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let device = bench.device.clone();
                scope.spawn(move || {
                    let own = Bench::new(device);
                    let mem = own.alloc(256);
                    for round in 0..50 {
                        let what = [thread * 50 + round];
                        let args = [memory(mem, 256), Arg::Bytes(&what)];
                        own.launch(kernel, Launch::linear(4, 64), &args).expect("a launch");
                        assert_eq!(own.read(mem, 256), vec![what[0]; 256]);
                    }
                    own.free(mem);
                });
            }
        });
    }
}

#[test]
fn a_kernel_belongs_to_its_device() {
    for device in devices() {
        let bench = Bench::new(device);
        let kernel = bench.load(Format::OpenClC, SET.as_bytes(), "set").expect("a kernel");
        // SAFETY: H1: it has no launches.
        unsafe { bench.device.kernels().expect("kernels").unload(kernel) };
        let mem = bench.alloc(64);
        let fault = bench.launch(kernel, Launch::linear(1, 1), &[memory(mem, 64), Arg::Bytes(&[1])]).expect_err("gone");
        assert_eq!(fault.kind, FaultKind::Invalid, "{fault}");
        bench.free(mem);
    }
}

/// `kernel void fill(global uint *to) { to[get_global_id(0)] = 42; }` in SPIR-V 1.0, word by word.
fn spirv() -> Vec<u8> {
    let name = |text: &str| -> Vec<u32> {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(bytes.len() / 4 * 4 + 4, 0);
        bytes.chunks(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
    };
    let mut words: Vec<u32> = vec![0x0723_0203, 0x0001_0000, 0, 20, 0];
    let mut op = |code: u32, operands: &[u32]| {
        words.push(((operands.len() as u32 + 1) << 16) | code);
        words.extend_from_slice(operands);
    };
    let (void, uint, ulong, v3ulong, v3pointer, id, pointer, function, entry, label, to, whole, x, place, answer) =
        (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    // Capabilities Addresses, Kernel, Int64; memory model Physical64, OpenCL.
    op(17, &[4]);
    op(17, &[6]);
    op(17, &[11]);
    op(14, &[2, 2]);
    // Entry point: Kernel.
    op(15, &[&[6, entry][..], &name("fill"), &[id]].concat());
    // The variable is the built-in GlobalInvocationId, constant.
    op(71, &[id, 11, 28]);
    op(71, &[id, 22]);
    op(19, &[void]);
    op(21, &[uint, 32, 0]);
    op(21, &[ulong, 64, 0]);
    op(23, &[v3ulong, ulong, 3]);
    op(32, &[v3pointer, 1, v3ulong]);
    op(32, &[pointer, 5, uint]);
    op(33, &[function, void, pointer]);
    op(43, &[uint, answer, 42]);
    op(59, &[v3pointer, id, 1]);
    op(54, &[void, entry, 0, function]);
    op(55, &[pointer, to]);
    op(248, &[label]);
    op(61, &[v3ulong, whole, id, 2, 32]);
    op(81, &[ulong, x, whole, 0]);
    op(70, &[pointer, place, to, x]);
    op(62, &[place, answer, 2, 4]);
    op(253, &[]);
    op(56, &[]);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn spirv_runs_where_it_is_taken() {
    for device in devices() {
        let bench = Bench::new(device);
        if !bench.device.kernels().is_some_and(|kernels| kernels.formats().contains(&Format::SpirV)) {
            eprintln!("skipped: {} takes no SPIR-V", bench.device.info().name);
            continue;
        }
        let kernel = bench.load(Format::SpirV, &spirv(), "fill").expect("a kernel");
        let mem = bench.alloc(256);
        bench.launch(kernel, Launch::linear(4, 16), &[memory(mem, 256)]).expect("a launch");
        let expected: Vec<u8> = [42_u32; 64].iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(bench.read(mem, 256), expected);
        bench.free(mem);
    }
}

/// What a compiler makes of a kernel, with group-local memory, atomic operations and a struct among its arguments: a built-in as if
/// it were a user's.
#[test]
fn spirv_of_a_compiler_runs_where_it_is_taken() {
    for device in devices() {
        let bench = Bench::new(device);
        if !bench.device.kernels().is_some_and(|kernels| kernels.formats().contains(&Format::SpirV)) {
            eprintln!("skipped: {} takes no SPIR-V", bench.device.info().name);
            continue;
        }
        let kernel =
            bench.load(Format::SpirV, Module::of(Program::Histogram, false).code(), "histogram").expect("a kernel");
        let bytes: Vec<u8> = (0..100_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut counts = vec![0_u64; 256];
        for &byte in &bytes {
            counts[usize::from(byte)] += 1;
        }
        let (to, from) = (bench.alloc(2048), bench.alloc(bytes.len() as u64));
        bench.upload(to, &[0; 2048]);
        bench.upload(from, &bytes);
        let params = histogram::Params::new(bytes.len() as u64).to_bytes();
        let (zero, len) = (0_u64.to_ne_bytes(), bytes.len() as u64);
        let args = [memory(to, 2048), Arg::Bytes(&zero), memory(from, len), Arg::Bytes(&zero), Arg::Bytes(&params)];
        bench.launch(kernel, Launch::linear(4, 64), &args).expect("a launch");
        let expected: Vec<u8> = counts.iter().flat_map(|count| count.to_ne_bytes()).collect();
        assert_eq!(bench.read(to, 2048), expected);
        bench.free(to);
        bench.free(from);
    }
}
