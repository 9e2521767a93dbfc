//! Generators and fills through the face, on simulated devices and on the host.

use anyaccel::hal::FaultKind;
use anyaccel::random::{Distribution, Generator, Layout, Options, RandomError, State};
use anyaccel::{DType, DeferKey, DeviceArg, Error, ErrorClass, Runtime};
use anyaccel_sim::{Deadlock, Injection, Method, Sim, SimConfig};
use std::sync::{Arc, Mutex};

fn simulated(config: SimConfig) -> (Sim, Runtime) {
    let sim = config.deadlock(Deadlock::Fault).build();
    let runtime = Runtime::builder().driver(Arc::new(sim.driver())).build().expect("a driver was given");
    (sim, runtime)
}

fn three_devices() -> (Sim, Runtime) {
    simulated(SimConfig::new().memories([64 << 20; 3]))
}

fn lacking() -> SimConfig {
    SimConfig::new().each_device(|device| device.capabilities.builtins = false)
}

fn without_builtins() -> Runtime {
    simulated(lacking()).1
}

fn host() -> Runtime {
    Runtime::builder().backend("host").build().expect("the host is built in")
}

fn state(seed: u64, offset: u64) -> State {
    State::new(seed, offset).expect("a multiple of 4")
}

fn seed_error(given: i128) -> Error {
    Error::Generator(RandomError::Seed { given })
}

fn offset_error(given: i128) -> Error {
    Error::Generator(RandomError::Offset { given })
}

const CUDA: Layout = Layout::TorchCuda { multiprocessors: 108, threads_per_multiprocessor: 2048 };

/// Elements from a generator of a known state.
fn drawn(
    runtime: &Runtime,
    dtype: DType,
    count: u64,
    distribution: Distribution,
    layout: Layout,
    from: State,
) -> Vec<u8> {
    let generator = Generator::new();
    generator.set_state(from);
    let buffer = runtime.alloc(count * dtype.size() as u64).expect("memory");
    let stream = runtime.stream(()).expect("a stream");
    let options = Options { generator: Some(&generator), layout };
    stream.random(&buffer.all(), dtype, distribution, &options).expect("a fill");
    stream.synchronize().expect("it ends");
    buffer.to_vec().expect("its bytes")
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[test]
fn seed_0_gives_the_numbers_of_torch_cuda() {
    let known = [0.3990, 0.5167, 0.0249, 0.9401, 0.9459, 0.7967, 0.4150, 0.8203, 0.2290, 0.9096];
    for (multiprocessors, threads_per_multiprocessor) in [(108, 2048), (132, 2048), (84, 1536), (1, 1024), (1, 256)] {
        let layout = Layout::TorchCuda { multiprocessors, threads_per_multiprocessor };
        for runtime in [host(), three_devices().1, without_builtins()] {
            let seen = floats(&drawn(&runtime, DType::F32, 10, Distribution::UNIFORM, layout, state(0, 0)));
            for (seen, known) in seen.iter().zip(known) {
                assert!((seen - known).abs() < 5e-5, "{seen} for {known}");
            }
        }
    }
}

fn distributions() -> Vec<(Distribution, Vec<DType>)> {
    use DType::*;
    let floats = || vec![F16, Bf16, F32, F64];
    vec![
        (Distribution::Bits, vec![U8, I16, U32, I64]),
        (Distribution::Uniform { from: -2.0, to: 3.0 }, floats()),
        (Distribution::Normal { mean: 1.0, std: 2.0 }, floats()),
        (Distribution::LogNormal { mean: 0.0, std: 0.5 }, floats()),
        (Distribution::Exponential { lambda: 2.0 }, floats()),
        (Distribution::Geometric { p: 0.25 }, vec![F32, F64, I32, U8]),
        (Distribution::Bernoulli { p: 0.3 }, vec![Bool, F32, F64, I8]),
        (Distribution::Integers { from: -5, to: 100 }, vec![I8, I32, F32]),
        (Distribution::Integers { from: i64::MIN.into(), to: i128::from(i64::MAX) + 1 }, vec![I64]),
        (Distribution::WholeNumbers, vec![U8, I64, F16, Bool]),
        (Distribution::Permutation, vec![I32, U64]),
    ]
}

#[test]
fn every_backend_gives_the_same_bits_with_and_without_builtins() {
    let runtimes = [host(), three_devices().1, without_builtins()];
    for (distribution, dtypes) in distributions() {
        for dtype in dtypes {
            for layout in [Layout::Portable, CUDA] {
                if distribution == Distribution::Permutation && layout == CUDA {
                    continue;
                }
                let case = format!("{distribution:?} of {dtype} in {layout:?}");
                let all: Vec<Vec<u8>> =
                    runtimes.iter().map(|r| drawn(r, dtype, 5003, distribution, layout, state(3, 40))).collect();
                assert!(all[0].iter().any(|&byte| byte != all[0][0]), "{case}");
                assert_eq!(all[0], all[1], "{case}: host and sim");
                assert_eq!(all[0], all[2], "{case}: with and without built-ins");
            }
        }
    }
}

#[test]
fn a_fill_is_one_launch_where_the_device_has_it_and_host_functions_elsewhere() {
    for (config, launches, functions) in [(SimConfig::new(), 1, 0), (lacking(), 0, 3)] {
        let (sim, runtime) = simulated(config);
        let (stream, noise) = (runtime.current_stream(()).unwrap(), runtime.array::<f32>(9 << 18).unwrap());
        noise.random(&stream, Distribution::UNIFORM, &Options::default()).unwrap();
        stream.synchronize().unwrap();
        assert_eq!((sim.calls(Method::Launch), sim.calls(Method::HostCall)), (launches, functions));
    }
}

#[test]
fn more_than_a_piece_is_the_same_without_builtins() {
    // 4 MiB are computed at a time; a torch-cuda pass of 7 blocks divides none of it evenly.
    let layouts = [Layout::Portable, Layout::TorchCuda { multiprocessors: 7, threads_per_multiprocessor: 256 }];
    for layout in layouts {
        let count = (9 << 20) / 4 + 3;
        let host = drawn(&host(), DType::F32, count, Distribution::UNIFORM, layout, state(1, 0));
        assert!(host == drawn(&without_builtins(), DType::F32, count, Distribution::UNIFORM, layout, state(1, 0)));
    }
}

#[test]
fn a_portable_element_depends_on_its_index_alone() {
    for runtime in [host(), without_builtins()] {
        let long = drawn(&runtime, DType::F32, 200_000, Distribution::NORMAL, Layout::Portable, state(9, 8));
        let short = drawn(&runtime, DType::F32, 77, Distribution::NORMAL, Layout::Portable, state(9, 8));
        assert_eq!(long[..short.len()], short);
        // Drawn in two parts, the second begins where the first has ended.
        let generator = Generator::seeded(9).unwrap();
        generator.set_offset(8).unwrap();
        let options = Options { generator: Some(&generator), ..Options::default() };
        let (array, stream) = (runtime.array::<f32>(200_000).unwrap(), runtime.current_stream(()).unwrap());
        array.slice(..120_000).unwrap().random(&stream, Distribution::NORMAL, &options).unwrap();
        assert_eq!(generator.offset(), 120_008);
        array.slice(120_000..).unwrap().random(&stream, Distribution::NORMAL, &options).unwrap();
        assert!(array.as_bytes().to_vec().unwrap() == long);
    }
}

#[test]
fn offsets_move_on_by_what_each_thread_may_call() {
    let runtime = host();
    let (stream, buffer) = (runtime.current_stream(()).unwrap(), runtime.alloc(8 << 20).unwrap());
    let moved = |dtype, count: u64, distribution, layout| {
        let generator = Generator::new();
        let part = buffer.slice(..count * DType::size(dtype) as u64).unwrap();
        let options = Options { generator: Some(&generator), layout };
        stream.random(&part, dtype, distribution, &options).unwrap();
        generator.offset()
    };
    let uniform = Distribution::UNIFORM;
    for (count, offset) in [(0, 0), (1, 4), (4, 4), (5, 8), (1000, 1000), (1001, 1004)] {
        assert_eq!(moved(DType::F32, count, uniform, Layout::Portable), offset, "{count} float32");
    }
    assert_eq!(moved(DType::F64, 3, uniform, Layout::Portable), 8);
    assert_eq!(moved(DType::I64, 3, Distribution::Permutation, Layout::Portable), 8);
    assert_eq!(moved(DType::I64, 5000, Distribution::Permutation, Layout::Portable), 10_000);
    // 2 multiprocessors of 512 threads: 1024 threads, 4096 float32 a pass.
    let small = Layout::TorchCuda { multiprocessors: 2, threads_per_multiprocessor: 512 };
    for (count, offset) in [(0, 0), (10, 4), (4096, 4), (4097, 8), (1 << 20, 1024)] {
        assert_eq!(moved(DType::F32, count, uniform, small), offset, "{count} float32");
    }
    assert_eq!(moved(DType::F64, 4096, uniform, small), 8);
    assert_eq!(moved(DType::F32, 1 << 20, uniform, CUDA), 8, "1048576 of 884736 elements a pass");
}

#[test]
fn streams_and_threads_share_a_generator_without_sharing_numbers() {
    for runtime in [host(), without_builtins()] {
        runtime.manual_seed(5).unwrap();
        let mut words: Vec<u32> = std::thread::scope(|scope| {
            let draw = || {
                let stream = runtime.stream(()).unwrap();
                let parts: Vec<_> = (0..50)
                    .map(|_| {
                        let part = runtime.array::<u32>(64).unwrap();
                        part.random(&stream, Distribution::Bits, &Options::default()).unwrap();
                        part
                    })
                    .collect();
                stream.synchronize().unwrap();
                parts.iter().flat_map(|part| part.to_vec().unwrap()).collect::<Vec<u32>>()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(draw)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let count = 4 * 50 * 64;
        assert_eq!(runtime.get_rng_state(()).unwrap(), state(5, count));
        let all = drawn(&runtime, DType::U32, count, Distribution::Bits, Layout::Portable, state(5, 0));
        let mut expected: Vec<u32> = all.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        words.sort_unstable();
        expected.sort_unstable();
        assert!(words == expected, "the parts that threads took are the sequence, each once");
    }
}

#[test]
fn a_fill_runs_in_stream_order() {
    for runtime in [three_devices().1, without_builtins()] {
        let (a, b) = (runtime.stream(()).unwrap(), runtime.stream(()).unwrap());
        let (noise, copy) = (runtime.array::<u32>(1 << 16).unwrap(), runtime.array::<u32>(1 << 16).unwrap());
        noise.all().fill(&a, 7).unwrap();
        noise.random(&a, Distribution::Bits, &Options::default()).unwrap();
        b.wait_stream(&a).unwrap();
        copy.all().copy_from(&b, &noise.all()).unwrap();
        a.wait_stream(&b).unwrap();
        noise.all().fill(&a, 9).unwrap();
        let mut seen = vec![0; 1 << 16];
        copy.all().download(&b, &mut seen).unwrap();
        assert!(seen.iter().filter(|&&word| word == 7 || word == 9).count() < 3);
        a.synchronize().unwrap();
        assert_eq!(noise.to_vec().unwrap(), vec![9; 1 << 16]);
    }
}

#[test]
fn arguments_out_of_range_are_refused_and_draw_nothing() {
    let runtime = host();
    runtime.manual_seed(1).unwrap();
    let (stream, buffer) = (runtime.current_stream(()).unwrap(), runtime.alloc(64).unwrap());
    let refused = |dtype, distribution, layout: Layout, class, words: &[&str]| {
        let options = Options { layout, ..Options::default() };
        let error = stream.random(&buffer.all(), dtype, distribution, &options).expect_err("refused");
        assert_eq!(error.class(), class, "{error}");
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text:?} without one of {words:?}");
    };
    let value = |distribution, words: &[&str]| {
        refused(DType::F32, distribution, Layout::Portable, ErrorClass::Value, words);
        refused(DType::F32, distribution, CUDA, ErrorClass::Value, words);
    };
    let infinite = f64::INFINITY;
    for p in [-0.1, 1.1, f64::NAN, infinite] {
        value(Distribution::Bernoulli { p }, &["p is", "from 0 to 1"]);
        value(Distribution::Geometric { p }, &["p is"]);
    }
    value(Distribution::Uniform { from: 1.0, to: 0.0 }, &["to is 0", "not below"]);
    value(Distribution::Uniform { from: -infinite, to: 0.0 }, &["from is -inf", "finite"]);
    value(Distribution::Uniform { from: 0.0, to: infinite }, &["to is inf", "finite"]);
    value(Distribution::Uniform { from: f64::NAN, to: 1.0 }, &["from is NaN"]);
    value(Distribution::Uniform { from: -3e38, to: 3e38 }, &["to - from"]);
    value(Distribution::Normal { mean: 0.0, std: -1.0 }, &["std is -1", "not below 0"]);
    value(Distribution::LogNormal { mean: infinite, std: 1.0 }, &["mean is inf"]);
    value(Distribution::Exponential { lambda: 0.0 }, &["lambda is 0", "positive"]);
    value(Distribution::Exponential { lambda: -1.0 }, &["lambda is -1"]);
    value(Distribution::Integers { from: 3, to: 3 }, &["from 3", "below 3"]);
    let byte = Distribution::Integers { from: 0, to: 257 };
    refused(DType::U8, byte, Layout::Portable, ErrorClass::Value, &["uint8", "257", "255"]);
    refused(DType::I32, Distribution::NORMAL, CUDA, ErrorClass::NotImplemented, &["random_normal", "int32"]);
    refused(DType::F32, Distribution::Bits, CUDA, ErrorClass::NotImplemented, &["float32"]);
    refused(DType::I32, Distribution::Permutation, CUDA, ErrorClass::Value, &["portable"]);
    for (multiprocessors, threads_per_multiprocessor) in [(0, 2048), (108, 255), (0, 0)] {
        let none = Layout::TorchCuda { multiprocessors, threads_per_multiprocessor };
        refused(DType::F32, Distribution::UNIFORM, none, ErrorClass::Value, &["layout", "256"]);
    }
    let odd = stream.random(&buffer.slice(..6).unwrap(), DType::F32, Distribution::UNIFORM, &Options::default());
    assert!(matches!(odd, Err(Error::Length { expected: 4, got: 6, .. })));
    let other = host();
    let foreign = other.current_stream(()).unwrap();
    let foreign = foreign.random(&buffer.all(), DType::F32, Distribution::UNIFORM, &Options::default());
    assert_eq!(foreign, Err(Error::ForeignRuntime { what: "buffer" }));
    // Checked even where there is nothing to fill.
    let nothing = runtime.alloc(0).unwrap();
    let bad = Distribution::Bernoulli { p: 2.0 };
    assert!(stream.random(&nothing.all(), DType::F32, bad, &Options::default()).is_err());
    assert_eq!(runtime.get_rng_state(()).unwrap(), state(1, 0));
}

#[test]
fn a_generator_has_pytorchs_first_seed_and_range_of_seeds() {
    let generator = Generator::new();
    assert_eq!((generator.initial_seed(), generator.offset()), (67_280_421_310_721, 0));
    let largest = i128::from(u64::MAX);
    let smallest = i128::from(i64::MIN);
    for (seed, modulo) in
        [(0, 0), (-1, u64::MAX), (largest, u64::MAX), (smallest, 1 << 63), (largest >> 1, u64::MAX >> 1)]
    {
        generator.manual_seed(seed).unwrap();
        assert_eq!(generator.initial_seed(), modulo);
    }
    generator.set_state(state(3, 8));
    for seed in [largest + 1, smallest - 1, i128::MAX, i128::MIN] {
        let error = generator.manual_seed(seed).unwrap_err();
        assert_eq!(error, seed_error(seed));
        assert_eq!(error.class(), ErrorClass::Value);
        assert!(error.to_string().contains(&seed.to_string()));
        assert!(Generator::seeded(seed).is_err());
    }
    assert_eq!(generator.state(), state(3, 8));
    assert_eq!(generator.set_offset(6), Err(offset_error(6)));
    assert_eq!(generator.set_offset(1_i128 << 63), Err(offset_error(1 << 63)));
    assert_eq!(generator.state(), state(3, 8));
    let clone = generator.clone();
    let drawn = clone.seed();
    assert!(drawn < 1 << 53 && generator.state() == state(drawn, 0), "clones are the same generator");
}

#[test]
fn states_are_16_bytes_or_8() {
    let seed = 0x0102_0304_0506_0708_u64;
    let bytes = [8, 7, 6, 5, 4, 3, 2, 1, 12, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(state(seed, 12).to_bytes(), bytes);
    assert_eq!(State::from_bytes(&bytes), Ok(state(seed, 12)));
    assert_eq!(State::from_bytes(&bytes[..8]), Ok(state(seed, 0)));
    for len in [0, 7, 9, 15, 17, 24, 5056] {
        let error = Error::from(State::from_bytes(&vec![0; len]).unwrap_err());
        assert_eq!(error.class(), ErrorClass::Runtime);
        let text = error.to_string();
        assert!(text.contains("16") && text.contains(&len.to_string()), "{text}");
    }
    assert!(matches!(State::from_bytes(&[255; 16]), Err(RandomError::Offset { given: -1 })), "a negative offset");
}

#[test]
fn a_generator_at_its_end_says_so() {
    let runtime = host();
    let generator = Generator::new();
    let last = (1 << 63) - 8;
    generator.set_offset(last).unwrap();
    let (stream, array) = (runtime.current_stream(()).unwrap(), runtime.array::<f32>(5).unwrap());
    let options = Options { generator: Some(&generator), ..Options::default() };
    let error = array.random(&stream, Distribution::UNIFORM, &options).unwrap_err();
    assert_eq!(error, Error::Generator(RandomError::Exhausted { offset: last, wanted: 8 }));
    assert_eq!(generator.offset(), last);
}

#[test]
fn devices_start_with_53_random_bits_of_their_own() {
    let (_sim, runtime) = three_devices();
    let states = runtime.get_rng_state_all().unwrap();
    assert!(states.len() == 3 && states.iter().all(|state| state.seed() < 1 << 53 && state.offset() == 0));
    assert!(states[0] != states[1] && states[1] != states[2]);
    assert_ne!(three_devices().1.initial_seed(0).unwrap(), states[0].seed());
    assert_eq!(runtime.initial_seed("sim:2").unwrap(), states[2].seed());
    assert!(matches!(runtime.get_rng_state(3), Err(Error::IndexOutOfRange { index: 3, count: Some(3) })));
    assert!(matches!(runtime.initial_seed(-1), Err(Error::IndexOutOfRange { .. })));
}

#[test]
fn a_devices_fills_come_from_its_own_generator() {
    let (_sim, runtime) = three_devices();
    runtime.manual_seed_all(4).unwrap();
    let _device = runtime.device_index(1).unwrap();
    let (stream, array) = (runtime.current_stream(()).unwrap(), runtime.array::<f32>(9).unwrap());
    array.random(&stream, Distribution::UNIFORM, &Options::default()).unwrap();
    assert_eq!(runtime.get_rng_state_all().unwrap(), [state(4, 0), state(4, 12), state(4, 0)]);
    assert_eq!(runtime.get_rng_state_offset(()).unwrap(), 12);
    runtime.set_rng_state_offset(4, ()).unwrap();
    assert_eq!(runtime.get_rng_state(1).unwrap(), state(4, 4));
}

#[test]
fn seeds_before_the_start_neither_pile_up_nor_start_anything() {
    let (sim, runtime) = three_devices();
    for seed in 0..100_000 {
        runtime.manual_seed(seed).unwrap();
    }
    for at in 0..100_000 {
        runtime.set_rng_state(state(at, 4 * at), 0).unwrap();
    }
    runtime.set_rng_state_offset(8, 0).unwrap();
    for seed in 0..1000 {
        runtime.manual_seed_all(seed).unwrap();
        runtime.seed().unwrap();
        runtime.seed_all().unwrap();
    }
    assert!(runtime.pending_calls() <= 2 * 4, "{}", runtime.pending_calls());
    assert!(!runtime.is_started());
    assert_eq!(sim.calls(Method::CreateStream), 0);
}

#[test]
fn the_last_word_holds_whatever_it_was_said_of() {
    // All, then one.
    let (_sim, runtime) = three_devices();
    runtime.manual_seed_all(1).unwrap();
    runtime.set_rng_state(state(77, 8), 0).unwrap();
    assert_eq!(runtime.get_rng_state_all().unwrap(), [state(77, 8), state(1, 0), state(1, 0)]);
    // One, then all.
    let (_sim, runtime) = three_devices();
    runtime.set_rng_state(state(77, 8), 0).unwrap();
    runtime.manual_seed_all(1).unwrap();
    assert_eq!(runtime.get_rng_state_all().unwrap(), [state(1, 0); 3]);
    // An offset holds for the seed before it, and not for one after it.
    let (_sim, runtime) = three_devices();
    runtime.manual_seed(2).unwrap();
    runtime.set_rng_state_offset(16, 0).unwrap();
    runtime.set_rng_state_offset(20, 1).unwrap();
    runtime.set_rng_state(state(3, 0), 1).unwrap();
    let states = runtime.get_rng_state_all().unwrap();
    assert_eq!(states[..2], [state(2, 16), state(3, 0)]);
    // States of all, and a seed that was drawn when it was asked for.
    let (_sim, runtime) = three_devices();
    runtime.set_rng_state_all(&[state(1, 4), state(2, 8), state(3, 12)]).unwrap();
    let drawn = runtime.seed().unwrap();
    assert_eq!(runtime.get_rng_state_all().unwrap(), [state(drawn, 0), state(2, 8), state(3, 12)]);
    let drawn = runtime.seed_all().unwrap();
    assert_eq!(runtime.get_rng_state_all().unwrap(), [state(drawn, 0); 3], "one seed for all");
}

#[test]
fn a_seed_is_for_the_device_that_is_current_when_it_is_asked_for() {
    let (_sim, runtime) = three_devices();
    // The only way to another current device before the start is one inherited from another life of it; here the choice
    // waits in line with the seeds.
    runtime.manual_seed(5).unwrap();
    runtime.lazy_call(|runtime| runtime.set_device_index(2)).unwrap();
    runtime.manual_seed(6).unwrap();
    runtime.current_stream(()).unwrap();
    assert_eq!(runtime.current_device_index().unwrap(), 2);
    assert_eq!(runtime.get_rng_state(0).unwrap(), state(6, 0));
    assert_ne!(runtime.initial_seed(2).unwrap(), 6);
    runtime.manual_seed(7).unwrap();
    assert_eq!(runtime.get_rng_state(2).unwrap(), state(7, 0));
}

#[test]
fn opaque_calls_keep_their_place_between_seeds() {
    let (_sim, runtime) = three_devices();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let look = || {
        let seen = Arc::clone(&seen);
        move |runtime: &Runtime| {
            seen.lock().unwrap().push(runtime.initial_seed(0)?);
            Ok(())
        }
    };
    runtime.manual_seed(1).unwrap();
    runtime.lazy_call(look()).unwrap();
    runtime.manual_seed(2).unwrap();
    runtime.manual_seed_all(3).unwrap();
    runtime.lazy_call_keyed(DeferKey { slot: 1, device: None }, look()).unwrap();
    runtime.manual_seed(4).unwrap();
    assert_eq!(runtime.initial_seed(0).unwrap(), 4);
    assert_eq!(*seen.lock().unwrap(), [1, 3]);
}

#[test]
fn a_failed_start_keeps_the_seeds_and_they_are_applied_once() {
    let (sim, runtime) = three_devices();
    sim.inject(Injection::kind(Method::Start, FaultKind::Driver));
    runtime.manual_seed_all(1).unwrap();
    runtime.set_rng_state(state(9, 4), 0).unwrap();
    assert!(matches!(runtime.get_rng_state(0), Err(Error::StartFailed { .. })));
    assert_eq!(runtime.pending_calls(), 2);
    assert_eq!(runtime.get_rng_state_all().unwrap(), [state(9, 4), state(1, 0), state(1, 0)]);
    assert_eq!(runtime.pending_calls(), 0);
    let (stream, array) = (runtime.current_stream(()).unwrap(), runtime.array::<f32>(4).unwrap());
    array.random(&stream, Distribution::UNIFORM, &Options::default()).unwrap();
    assert_eq!(runtime.get_rng_state(0).unwrap(), state(9, 8), "not set again");
}

#[test]
fn bad_seeds_and_states_are_refused_before_the_start_too() {
    let (_sim, runtime) = three_devices();
    let over = 1_i128 << 64;
    assert_eq!(runtime.manual_seed(over), Err(seed_error(over)));
    assert_eq!(runtime.manual_seed_all(over), Err(seed_error(over)));
    assert_eq!(runtime.set_rng_state_offset(2, 0), Err(offset_error(2)));
    assert!(matches!(runtime.set_rng_state(state(0, 0), 3), Err(Error::IndexOutOfRange { index: 3, .. })));
    assert!(matches!(runtime.set_rng_state(state(0, 0), "host:0"), Err(Error::WrongKind { .. })));
    for (states, devices) in [(2, 3), (4, 3), (0, 3)] {
        let error = runtime.set_rng_state_all(&vec![state(0, 0); states]).unwrap_err();
        assert_eq!(error, Error::Generator(RandomError::StateCount { given: states, expected: devices }));
    }
    assert!(!runtime.is_started() && runtime.pending_calls() == 0);
    let before = runtime.get_rng_state_all().unwrap();
    assert!(runtime.manual_seed(over).is_err() && runtime.set_rng_state_all(&[]).is_err());
    assert_eq!(runtime.get_rng_state_all().unwrap(), before);
}

#[test]
fn without_an_accelerator_setting_is_ignored_and_there_are_no_states() {
    let (_sim, runtime) = simulated(SimConfig::new().memories([]));
    runtime.manual_seed(1).unwrap();
    runtime.manual_seed_all(1).unwrap();
    runtime.seed().unwrap();
    runtime.seed_all().unwrap();
    runtime.set_rng_state(state(0, 0), ()).unwrap();
    runtime.set_rng_state(state(0, 0), 0).unwrap();
    runtime.set_rng_state_all(&[state(0, 0)]).unwrap();
    runtime.set_rng_state_offset(4, ()).unwrap();
    drop(runtime.fork_rng(None).unwrap());
    assert_eq!(runtime.get_rng_state_all().unwrap(), []);
    assert_eq!((runtime.pending_calls(), runtime.is_started()), (0, false));
    assert!(runtime.initial_seed(()).is_err() && runtime.get_rng_state(()).is_err());
    assert_eq!(runtime.manual_seed(-(1_i128 << 64)), Err(seed_error(-(1 << 64))));
}

#[test]
fn a_forked_generator_returns_to_where_it_was() {
    let (_sim, runtime) = three_devices();
    runtime.manual_seed_all(1).unwrap();
    {
        let _some = runtime.fork_rng(Some(&[0.into(), DeviceArg::Text("sim:2")])).unwrap();
        runtime.manual_seed_all(2).unwrap();
        {
            let _all = runtime.fork_rng(None).unwrap();
            runtime.manual_seed_all(3).unwrap();
        }
        assert_eq!(runtime.get_rng_state_all().unwrap(), [state(2, 0); 3]);
    }
    assert_eq!(runtime.get_rng_state_all().unwrap(), [state(1, 0), state(2, 0), state(1, 0)]);
    assert!(runtime.fork_rng(Some(&[5.into()])).is_err());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _all = runtime.fork_rng(None).unwrap();
        runtime.manual_seed_all(9).unwrap();
        std::panic::resume_unwind(Box::new("on the way out"));
    }));
    assert!(panicked.is_err());
    assert_eq!(runtime.get_rng_state_all().unwrap(), [state(1, 0), state(2, 0), state(1, 0)]);
}
