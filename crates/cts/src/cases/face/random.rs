//! Generators, seeds and fills: equal bits, the right part of the sequence, and seeds that wait for the start.

use super::{Bent, Face};
use crate::case::{Capability, Case, Outcome, Stop, errs, expect, same, same_bytes};
use crate::env::Env;
use crate::fork::{FROZEN, RESTARTS, script};
use crate::words::plain;
use anyaccel::random::{Distribution, Generator, Layout, Options, RandomError, State};
use anyaccel::{DType, Error, ErrorClass, Runtime};
use anyaccel_kernels::random::{Draw, Fill, Layout as Blocks};
use std::sync::Arc;

const CHILD: &[Capability] = &[Capability::Child];

pub(super) const CASES: &[Case] = &[
    Case::face("random.fills", &["random.fills", "random.offset"], fills),
    Case::face("random.known-values", &["random.torch-cuda"], known_values),
    Case::face("random.stream-order", &["random.stream-order"], stream_order),
    Case::face("random.streams-share-nothing", &["random.offset", "thread.any"], streams_share_nothing),
    Case::face("random.refused", &["random.refused"], refused),
    Case::face("random.generator", &["random.generator", "random.seeds"], generator),
    Case::face("random.state", &["random.state"], state_bytes),
    Case::face("random.unseeded", &["random.defaults"], unseeded).devices(2),
    Case::face("random.own-generators", &["random.defaults", "random.reads"], own_generators).devices(2),
    Case::face("random.starts", &["random.reads", "start.marked"], starts),
    Case::face("random.waiting", &["random.deferred", "scenario.9"], waiting).devices(2),
    Case::face("random.last-word", &["random.deferred", "scenario.9"], last_word).devices(2),
    Case::face("random.failed-start", &["random.deferred", "scenario.9"], failed_start).devices(2),
    Case::face("random.no-accelerator", &["random.no-accelerator"], no_accelerator),
    Case::face("random.fork-rng", &["random.fork-rng"], fork_rng).devices(2),
    Case::face("random.after-a-fork", &["random.child", "fork.restart"], after_a_fork).needs(CHILD).devices(2),
    Case::face("random.after-a-fork/fresh", &["random.child"], after_a_fresh_fork).needs(CHILD).devices(2),
    Case::face("random.after-a-fork/frozen", &["fork.no-ops", "fork.one-error"], |env| {
        script(env, "random-frozen", FROZEN)
    })
    .needs(CHILD)
    .devices(2),
];

fn state(seed: u64, offset: u64) -> Outcome<State> {
    State::new(seed, offset).map_err(|error| Stop::from(Error::from(error)))
}

fn drawn(
    runtime: &Runtime,
    dtype: DType,
    count: u64,
    distribution: Distribution,
    options: Options<'_>,
) -> Outcome<Vec<u8>> {
    let (stream, buffer) = (runtime.stream(())?, runtime.alloc(count * dtype.size() as u64)?);
    stream.random(&buffer.all(), dtype, distribution, &options)?;
    stream.synchronize()?;
    Ok(buffer.to_vec()?)
}

/// Every distribution has the bits of its definition, whether the device has the built-in or not.
fn fills(env: &Env) -> Outcome {
    use DType::*;
    let face = Face::new(env)?;
    let count = 1111;
    type Made = Result<Fill, anyaccel_kernels::KernelError>;
    type Definition = fn(DType, u64, Draw) -> Made;
    let all: [(Distribution, DType, Definition); 12] = [
        (Distribution::Bits, U16, |t, n, d| Fill::bits(t, n, d)),
        (Distribution::Bits, I64, |t, n, d| Fill::bits(t, n, d)),
        (Distribution::UNIFORM, F32, |t, n, d| Fill::uniform(t, n, d, 0.0, 1.0)),
        (Distribution::Uniform { from: -2.0, to: 5.0 }, F16, |t, n, d| Fill::uniform(t, n, d, -2.0, 5.0)),
        (Distribution::NORMAL, F32, |t, n, d| Fill::normal(t, n, d, 0.0, 1.0)),
        (Distribution::LogNormal { mean: 0.0, std: 0.5 }, F64, |t, n, d| Fill::log_normal(t, n, d, 0.0, 0.5)),
        (Distribution::Exponential { lambda: 2.0 }, Bf16, |t, n, d| Fill::exponential(t, n, d, 2.0)),
        (Distribution::Geometric { p: 0.1 }, I32, |t, n, d| Fill::geometric(t, n, d, 0.1)),
        (Distribution::Bernoulli { p: 0.7 }, Bool, |t, n, d| Fill::bernoulli(t, n, d, 0.7)),
        (Distribution::Integers { from: -3, to: 7 }, I8, |t, n, d| Fill::integers(t, n, d, -3, 7)),
        (Distribution::WholeNumbers, U32, |t, n, d| Fill::whole_numbers(t, n, d)),
        (Distribution::Permutation, I64, |t, n, d| Fill::permutation(t, n, d)),
    ];
    for (distribution, dtype, definition) in all {
        let draw = Draw::portable(env.seed, 8);
        let what = format!("{distribution:?} of {dtype}");
        let fill = match definition(dtype, count, draw) {
            Ok(fill) => fill,
            Err(error) => return crate::case::fail("", "the definition to take the arguments", error.to_string()),
        };
        let mut expected = vec![0; fill.destination_len() as usize];
        if let Err(error) = fill.run(0..count, &mut expected, &[]) {
            return crate::case::fail("", "the definition to take the lengths", error.to_string());
        }
        let generator = Generator::seeded(env.seed)?;
        generator.set_offset(8)?;
        let options = Options { generator: Some(&generator), ..Options::default() };
        let seen = drawn(&face.runtime, dtype, count, distribution, options)?;
        same_bytes("random.fills", &what, &seen, &expected)?;
        let calls = count.div_ceil(fill.per_call());
        same("random.offset", &format!("the offset after {what}"), generator.offset(), 8 + 4 * calls)?;
    }
    Ok(())
}

/// `torch.manual_seed(0); torch.rand(10)` on CUDA, to four places; more in the order of several passes.
fn known_values(env: &Env) -> Outcome {
    let known = [0.3990, 0.5167, 0.0249, 0.9401, 0.9459, 0.7967, 0.4150, 0.8203, 0.2290, 0.9096];
    let face = Face::new(env)?;
    let layout = Layout::TorchCuda { multiprocessors: 108, threads_per_multiprocessor: 2048 };
    let generator = Generator::seeded(0)?;
    let options = Options { generator: Some(&generator), layout };
    let seen = drawn(&face.runtime, DType::F32, 10, Distribution::UNIFORM, options)?;
    let seen = seen.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    for (seen, known) in seen.zip(known) {
        expect("random.torch-cuda", (seen - known).abs() < 5e-5, &format!("{known}"), seen)?;
    }
    // 512 threads, 2048 float32 a pass: 5000 take three passes.
    let layout = Layout::TorchCuda { multiprocessors: 1, threads_per_multiprocessor: 512 };
    generator.manual_seed(env.seed)?;
    let seen =
        drawn(&face.runtime, DType::F32, 5000, Distribution::UNIFORM, Options { generator: Some(&generator), layout })?;
    let draw = Draw { layout: Blocks::TorchCuda { blocks: 2 }, ..Draw::portable(env.seed, 0) };
    let mut expected = vec![0; 20_000];
    let defined = Fill::uniform(DType::F32, 5000, draw, 0.0, 1.0).and_then(|f| f.run(0..5000, &mut expected, &[]));
    same("random.torch-cuda", "the definition", defined, Ok(()))?;
    same_bytes("random.torch-cuda", "three passes of 512 threads", &seen, &expected)?;
    same("random.torch-cuda", "the offset after three passes", generator.offset(), 12)
}

fn stream_order(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    let (a, b) = (runtime.stream(())?, runtime.stream(())?);
    let (noise, copy) = (runtime.array::<u32>(3000)?, runtime.array::<u32>(3000)?);
    let generator = Generator::seeded(env.seed)?;
    let hold = face.hold(&a)?;
    noise.all().fill(&a, 7)?;
    noise.random(&a, Distribution::Bits, &Options { generator: Some(&generator), ..Options::default() })?;
    same("random.stream-order", "the offset while the stream waits", generator.offset(), 3000)?;
    b.wait_stream(&a)?;
    copy.all().copy_from(&b, &noise.all())?;
    a.wait_stream(&b)?;
    noise.all().fill(&a, 9)?;
    drop(hold);
    face.finish(&a)?;
    face.finish(&b)?;
    let mut expected = vec![0; 12_000];
    let defined =
        Fill::bits(DType::U32, 3000, Draw::portable(env.seed, 0)).and_then(|f| f.run(0..3000, &mut expected, &[]));
    same("random.stream-order", "the definition", defined, Ok(()))?;
    same_bytes("random.stream-order", "a copy of the fill", &copy.as_bytes().to_vec()?, &expected)?;
    same("random.stream-order", "the fill after it", noise.to_vec()?, vec![9; 3000])
}

fn streams_share_nothing(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    runtime.manual_seed(env.seed)?;
    let draw = || -> Outcome<Vec<Vec<u32>>> {
        let stream = runtime.stream(())?;
        let parts: Vec<_> = (0..20)
            .map(|_| {
                let part = runtime.array::<u32>(16)?;
                part.random(&stream, Distribution::Bits, &Options::default())?;
                Ok(part)
            })
            .collect::<anyaccel::Result<_>>()?;
        stream.synchronize()?;
        Ok(parts.iter().map(|part| part.to_vec()).collect::<anyaccel::Result<_>>()?)
    };
    let mut seen: Vec<Vec<u32>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(draw)).collect();
        let ended = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| crate::case::fail("thread.any", "no panic", "a panic in a thread"))
        });
        ended.collect::<Outcome<Vec<_>>>()
    })?
    .concat();
    same("random.offset", "the state after 80 fills", runtime.get_rng_state(())?, state(env.seed, 80 * 16)?)?;
    let generator = Generator::seeded(env.seed)?;
    let options = Options { generator: Some(&generator), ..Options::default() };
    let whole = drawn(runtime, DType::U32, 80 * 16, Distribution::Bits, options)?;
    let words: Vec<u32> = whole.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    let mut expected: Vec<Vec<u32>> = words.chunks(16).map(<[u32]>::to_vec).collect();
    seen.sort_unstable();
    expected.sort_unstable();
    expect("random.offset", seen == expected, "each part of the sequence once", "other parts")
}

fn refused(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let (runtime, rule) = (&face.runtime, "random.refused");
    runtime.manual_seed(3)?;
    let (stream, buffer) = (runtime.current_stream(())?, runtime.alloc(64)?);
    let (nan, infinite) = (f64::NAN, f64::INFINITY);
    let bad = [
        Distribution::Bernoulli { p: 1.5 },
        Distribution::Bernoulli { p: nan },
        Distribution::Geometric { p: 0.0 },
        Distribution::Uniform { from: 1.0, to: 0.0 },
        Distribution::Uniform { from: 0.0, to: infinite },
        Distribution::Normal { mean: 0.0, std: -1.0 },
        Distribution::Exponential { lambda: 0.0 },
        Distribution::Integers { from: 4, to: 4 },
    ];
    let random = |error: &Error| matches!(error, Error::Random(_));
    for distribution in bad {
        let filled = stream.random(&buffer.all(), DType::F32, distribution, &Options::default());
        errs(rule, &plain(&distribution), "Random", filled, random)?;
    }
    let filled = stream.random(&buffer.all(), DType::I32, Distribution::NORMAL, &Options::default());
    errs(rule, "normal integers", "Random, not implemented", filled, |error| {
        random(error) && error.class() == ErrorClass::NotImplemented
    })?;
    let filled = stream.random(&buffer.slice(..6)?, DType::F32, Distribution::UNIFORM, &Options::default());
    errs(rule, "half an element", "Length", filled, |error| matches!(error, Error::Length { .. }))?;
    let layout = Layout::TorchCuda { multiprocessors: 0, threads_per_multiprocessor: 2048 };
    let filled =
        stream.random(&buffer.all(), DType::F32, Distribution::UNIFORM, &Options { layout, ..Options::default() });
    errs(rule, "a layout without threads", "Generator", filled, |error| matches!(error, Error::Generator(_)))?;
    same(rule, "the generator after all that", runtime.get_rng_state(())?, state(3, 0)?)
}

fn generator(_: &Env) -> Outcome {
    let rule = "random.generator";
    let generator = Generator::new();
    same(rule, "seed and offset of a new one", generator.state(), state(67_280_421_310_721, 0)?)?;
    let (least, most) = (i128::from(i64::MIN), i128::from(u64::MAX));
    for (seed, modulo) in [(0, 0), (-1, u64::MAX), (least, 1 << 63), (most, u64::MAX)] {
        generator.manual_seed(seed)?;
        same("random.seeds", &format!("seed {seed}"), generator.initial_seed(), modulo)?;
    }
    generator.set_state(state(5, 12)?);
    for given in [least - 1, most + 1] {
        let right = |error: &Error| {
            *error == Error::Generator(RandomError::Seed { given }) && error.class() == ErrorClass::Value
        };
        errs("random.seeds", &format!("seed {given}"), "its number", generator.manual_seed(given), right)?;
    }
    errs(rule, "an offset that is no multiple of 4", "Generator", generator.set_offset(6), |error| {
        matches!(error, Error::Generator(RandomError::Offset { given: 6 }))
    })?;
    same(rule, "the state after what was refused", generator.state(), state(5, 12)?)?;
    let clone = generator.clone();
    clone.manual_seed(8)?;
    same(rule, "a clone", generator.initial_seed(), 8)
}

fn state_bytes(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let rule = "random.state";
    face.runtime.manual_seed(0x0102)?;
    face.runtime.set_rng_state_offset(8, ())?;
    let bytes = face.runtime.get_rng_state(())?.to_bytes();
    same(rule, "the bytes", bytes, [2, 1, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0])?;
    same(rule, "8 bytes", State::from_bytes(&bytes[..8]), State::new(0x0102, 0))?;
    for len in [0, 7, 9, 17] {
        let seen = State::from_bytes(&vec![0; len]).map_err(Error::from);
        errs(rule, &format!("{len} bytes"), "both sizes", seen, |error| {
            let text = error.to_string();
            text.contains("16") && text.contains(&len.to_string()) && error.class() == ErrorClass::Runtime
        })?;
    }
    Ok(())
}

fn unseeded(env: &Env) -> Outcome {
    let rule = "random.defaults";
    let states = Face::new(env)?.runtime.get_rng_state_all()?;
    same(rule, "states", states.len() >= 2, true)?;
    let small = states.iter().all(|state| state.seed() < 1 << 53 && state.offset() == 0);
    expect(rule, small, "53 bits and offset 0", plain(&states))?;
    expect(rule, states[0] != states[1], "seeds of their own", plain(&states))?;
    let again = Face::new(env)?.runtime.initial_seed(0)?;
    expect(rule, again != states[0].seed(), "another seed each time", again)
}

fn own_generators(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    runtime.manual_seed_all(4)?;
    {
        let _device = runtime.device_index(1)?;
        drawn(runtime, DType::F32, 9, Distribution::UNIFORM, Options::default())?;
        same("random.reads", "the current device's offset", runtime.get_rng_state_offset(())?, 12)?;
        runtime.manual_seed(6)?;
    }
    let states = runtime.get_rng_state_all()?;
    same("random.defaults", "two devices' states", states[..2].to_vec(), vec![state(4, 0)?, state(6, 0)?])?;
    let count = runtime.device_count();
    let right = |error: &Error| matches!(error, Error::IndexOutOfRange { .. });
    errs("random.reads", "a device that is not there", "IndexOutOfRange", runtime.get_rng_state(count), right)?;
    errs("random.reads", "device -1", "IndexOutOfRange", runtime.initial_seed(-1), right)
}

type Call = (&'static str, fn(&Runtime) -> anyaccel::Result<()>);

pub(crate) const READS: &[Call] = &[
    ("initial_seed", |runtime| runtime.initial_seed(()).map(drop)),
    ("get_rng_state", |runtime| runtime.get_rng_state(0).map(drop)),
    ("get_rng_state_all", |runtime| runtime.get_rng_state_all().map(drop)),
    ("get_rng_state_offset", |runtime| runtime.get_rng_state_offset(()).map(drop)),
    ("fork_rng", |runtime| runtime.fork_rng(None).map(drop)),
];

pub(crate) const SETTERS: &[Call] = &[
    ("manual_seed", |runtime| runtime.manual_seed(1)),
    ("manual_seed_all", |runtime| runtime.manual_seed_all(1)),
    ("seed", |runtime| runtime.seed().map(drop)),
    ("seed_all", |runtime| runtime.seed_all().map(drop)),
    ("set_rng_state", |runtime| runtime.set_rng_state(State::from_bytes(&[1; 8])?, ())),
    ("set_rng_state_offset", |runtime| runtime.set_rng_state_offset(4, ())),
];

fn starts(env: &Env) -> Outcome {
    for (name, call) in READS {
        let face = Face::new(env)?;
        for (setter, set) in SETTERS {
            set(&face.runtime)?;
            same("random.reads", &format!("whether {setter} starts"), face.runtime.is_started(), false)?;
        }
        call(&face.runtime)?;
        same("random.reads", &format!("whether {name} starts"), face.runtime.is_started(), true)?;
    }
    Ok(())
}

fn waiting(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    for seed in 0..100_000 {
        runtime.manual_seed(seed)?;
    }
    for at in 0..100_000 {
        runtime.set_rng_state(state(at, 4)?, 0)?;
    }
    let pending = runtime.pending_calls();
    expect("scenario.9", pending <= 8, "a few pending calls after 200,000", pending)?;
    same("random.deferred", "whether they started the runtime", runtime.is_started(), false)?;
    same("random.deferred", "the state in the end", runtime.get_rng_state(0)?, state(99_999, 4)?)
}

fn last_word(env: &Env) -> Outcome {
    let saved = state(77, 8)?;
    for all_last in [false, true] {
        let face = Face::new(env)?;
        let runtime = &face.runtime;
        if all_last {
            runtime.set_rng_state(saved, 0)?;
            runtime.manual_seed_all(1)?;
        } else {
            runtime.manual_seed_all(1)?;
            runtime.set_rng_state(saved, 0)?;
        }
        let expected = if all_last { [state(1, 0)?; 2] } else { [saved, state(1, 0)?] };
        same("scenario.9", "two devices' states", runtime.get_rng_state_all()?[..2].to_vec(), expected.to_vec())?;
    }
    let face = Face::new(env)?;
    let drawn = face.runtime.seed_all()?;
    face.runtime.set_rng_state_offset(16, 1)?;
    let states = face.runtime.get_rng_state_all()?;
    same("random.deferred", "one seed for all", states[..2].to_vec(), vec![state(drawn, 0)?, state(drawn, 16)?])?;
    let one = [states[0]];
    errs(
        "random.deferred",
        "states of one device for two",
        "Generator",
        face.runtime.set_rng_state_all(&one),
        |error| matches!(error, Error::Generator(RandomError::StateCount { given: 1, .. })),
    )?;
    face.runtime.set_rng_state_all(&states)?;
    same("random.deferred", "all states, set again", face.runtime.get_rng_state_all()?, states)
}

fn failed_start(env: &Env) -> Outcome {
    let face = Face::over(Arc::new(Bent::new(env.make()?.driver).failing(1)), env)?;
    let runtime = &face.runtime;
    runtime.manual_seed_all(1)?;
    runtime.set_rng_state(state(9, 4)?, 0)?;
    let failed = |error: &Error| matches!(error, Error::StartFailed { .. });
    errs("random.deferred", "the first start", "StartFailed", runtime.get_rng_state(0), failed)?;
    same("random.deferred", "pending calls after it", runtime.pending_calls(), 2)?;
    let states = runtime.get_rng_state_all()?;
    same("random.deferred", "states after the second", states[..2].to_vec(), vec![state(9, 4)?, state(1, 0)?])?;
    drawn(runtime, DType::F32, 4, Distribution::UNIFORM, Options::default())?;
    same("random.deferred", "a state that was set once", runtime.get_rng_state(0)?, state(9, 8)?)
}

fn no_accelerator(env: &Env) -> Outcome {
    let rule = "random.no-accelerator";
    let face = Face::over(Arc::new(Bent::new(env.make()?.driver).hidden()), env)?;
    let runtime = &face.runtime;
    for (name, call) in SETTERS {
        call(runtime)?;
        same(rule, &format!("pending calls after {name}"), runtime.pending_calls(), 0)?;
    }
    runtime.set_rng_state_all(&[state(1, 0)?; 3])?;
    same(rule, "get_rng_state_all", runtime.get_rng_state_all()?, vec![])?;
    drop(runtime.fork_rng(None)?);
    same(rule, "whether it started", runtime.is_started(), false)?;
    errs(rule, "a state of no device", "an error", runtime.get_rng_state(()), |_| true)
}

fn fork_rng(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let (runtime, rule) = (&face.runtime, "random.fork-rng");
    let both = |a, b| -> Outcome<Vec<State>> { Ok(vec![state(a, 0)?, state(b, 0)?]) };
    runtime.manual_seed_all(1)?;
    {
        let _one = runtime.fork_rng(Some(&[1.into()]))?;
        runtime.manual_seed_all(2)?;
        {
            let _all = runtime.fork_rng(None)?;
            runtime.manual_seed_all(3)?;
        }
        same(rule, "states after the inner scope", runtime.get_rng_state_all()?[..2].to_vec(), both(2, 2)?)?;
    }
    same(rule, "states after the outer scope", runtime.get_rng_state_all()?[..2].to_vec(), both(2, 1)?)
}

fn restartable(env: &Env) -> Outcome {
    if env.driver()?.restartable() { Ok(()) } else { crate::case::skip("the kind can't start again in a child") }
}

fn after_a_fork(env: &Env) -> Outcome {
    restartable(env)?;
    script(env, "random-live", RESTARTS)
}

fn after_a_fresh_fork(env: &Env) -> Outcome {
    restartable(env)?;
    script(env, "random-fresh", RESTARTS)
}
