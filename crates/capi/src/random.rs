//! Generators, and random fills by address.

use crate::memory::{dtype, index, with_place};
use crate::pointer::{Out, get_struct};
use crate::result::{Failure, Result, call};
use crate::runtime::named;
use crate::state;
use crate::stream::with_stream_on;
use crate::types::*;
use face::Runtime;
use face::random::{Distribution, Generator, Layout, Options, Seed, State};
use std::ffi::c_void;

/// Above the numbers of created generators.
const DEFAULT: u64 = 1 << 63;

/// The device whose default generator a number stands for.
fn default_of(generator: anyaccel_generator) -> Option<u32> {
    (generator & DEFAULT != 0).then_some(generator as u32)
}

/// Runs `f` with a created generator.
fn with<T>(generator: anyaccel_generator, f: impl FnOnce(&Generator) -> face::Result<T>) -> Result<T> {
    state::tables().generators.with(generator, |generator| Ok(f(generator)?))
}

/// Makes a generator of its own, for any device, with a seed. Devices have default generators besides:
/// ANYACCEL_DEFAULT_GENERATOR(device).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_generator_create(seed: u64, generator: *mut anyaccel_generator) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(generator, "generator")? };
        out.put(state::tables().generators.insert(Generator::seeded(seed)?)?);
        Ok(())
    })
}

/// Destroys a generator. Fills that were enqueued, and graphs, keep theirs. 0 and default generators are fine.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_generator_destroy(generator: anyaccel_generator) -> anyaccel_result {
    call(|| {
        if generator == 0 || default_of(generator).is_some() {
            return Ok(());
        }
        state::tables().generators.remove(generator).map(drop)
    })
}

/// Seed and offset of a generator: how far its sequence was drawn, in words of 32 bits, a multiple of 4. Starts the runtime for a
/// default generator.
///
/// @param seed may be NULL.
/// @param offset may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_generator_get(
    generator: anyaccel_generator,
    seed: *mut u64,
    offset: *mut u64,
) -> anyaccel_result {
    call(|| {
        let state = match default_of(generator) {
            Some(device) => Runtime::global().get_rng_state(named(device as i32))?,
            None => with(generator, |generator| Ok(generator.state()))?,
        };
        for (out, value) in [(seed, state.seed()), (offset, state.offset())] {
            // SAFETY: C1 is this function's condition.
            if let Some(out) = unsafe { Out::optional(out) } {
                out.put(value);
            }
        }
        Ok(())
    })
}

/// Sets seed and offset of a generator. Of a default generator before the start: once it has started.
///
/// @param offset a multiple of 4, at most 2^63 - 4; 0 after a new seed.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_generator_set(generator: anyaccel_generator, seed: u64, offset: u64) -> anyaccel_result {
    call(|| {
        let state = State::new(seed, offset).map_err(face::Error::Generator)?;
        match default_of(generator) {
            Some(device) => Ok(Runtime::global().set_rng_state(state, named(device as i32))?),
            None => with(generator, |generator| {
                generator.set_state(state);
                Ok(())
            }),
        }
    })
}

/// Seeds a generator with 53 random bits; its offset becomes 0. Starts the runtime for a default generator.
///
/// @param seed receives them; may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_generator_seed(generator: anyaccel_generator, seed: *mut u64) -> anyaccel_result {
    call(|| {
        let drawn = match default_of(generator) {
            Some(device) => {
                let runtime = Runtime::global();
                let drawn = Generator::new().seed();
                runtime.set_rng_state(State::new(drawn, 0).map_err(face::Error::Generator)?, named(device as i32))?;
                drawn
            }
            None => with(generator, |generator| Ok(generator.seed()))?,
        };
        // SAFETY: C1 is this function's condition.
        if let Some(out) = unsafe { Out::optional(seed) } {
            out.put(drawn);
        }
        Ok(())
    })
}

/// Takes a part of a generator's sequence for numbers that the caller draws itself: moves its offset on, in one step whatever
/// other threads do.
///
/// @param words how many words of 32 bits; rounded up to a multiple of 4.
/// @param seed receives the seed; may be NULL.
/// @param offset receives the offset where the part begins; may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_generator_take(
    generator: anyaccel_generator,
    words: u64,
    seed: *mut u64,
    offset: *mut u64,
) -> anyaccel_result {
    call(|| {
        let state = match default_of(generator) {
            Some(device) => Runtime::global().take_random(words, named(device as i32))?,
            None => with(generator, |generator| generator.take(words))?,
        };
        for (out, value) in [(seed, state.seed()), (offset, state.offset())] {
            // SAFETY: C1 is this function's condition.
            if let Some(out) = unsafe { Out::optional(out) } {
                out.put(value);
            }
        }
        Ok(())
    })
}

/// Fills device memory with random elements. The generator moves on as this returns; captured into a graph, at each replay.
///
/// @param memory any address inside, of count elements.
/// @param count elements.
/// @param generator 0: the default generator of the memory's device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_fill_random(
    memory: *mut c_void,
    count: u64,
    fill: *const anyaccel_random,
    generator: anyaccel_generator,
    stream: anyaccel_stream,
) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 and C3 are this function's conditions.
        let fill: anyaccel_random = unsafe { get_struct(fill, "fill")? };
        let (dtype, distribution, layout) = (dtype(fill.dtype)?, distribution(&fill)?, layout(&fill)?);
        let size = count.checked_mul(dtype.size() as u64);
        let size = size.ok_or_else(|| Failure::argument(format!("count: {count} elements")))?;
        let own = match default_of(generator) {
            None if generator != 0 => Some(with(generator, |generator| Ok(generator.clone()))?),
            _ => None,
        };
        if size == 0 {
            return Ok(());
        }
        let runtime = Runtime::global();
        with_place(&runtime, memory, size, |buffer, at| {
            let device = index(buffer);
            if let Some(named) = default_of(generator).filter(|&named| named as i32 != device) {
                return Err(Failure::new(
                    ANYACCEL_ERROR_WRONG_DEVICE,
                    format!("the default generator of device {named} for memory on {}", buffer.device()),
                ));
            }
            let to = buffer.slice(at..at + size)?;
            let options = Options { generator: own.as_ref(), layout };
            with_stream_on(stream, device, |stream| Ok(stream.random(&to, dtype, distribution, &options)?))
        })
    })
}

fn distribution(fill: &anyaccel_random) -> Result<Distribution> {
    let &anyaccel_random { a, b, from, count, .. } = fill;
    Ok(match fill.distribution {
        ANYACCEL_RANDOM_BITS => Distribution::Bits,
        ANYACCEL_RANDOM_UNIFORM => Distribution::Uniform { from: a, to: b },
        ANYACCEL_RANDOM_NORMAL => Distribution::Normal { mean: a, std: b },
        ANYACCEL_RANDOM_LOG_NORMAL => Distribution::LogNormal { mean: a, std: b },
        ANYACCEL_RANDOM_EXPONENTIAL => Distribution::Exponential { lambda: a },
        ANYACCEL_RANDOM_GEOMETRIC => Distribution::Geometric { p: a },
        ANYACCEL_RANDOM_BERNOULLI => Distribution::Bernoulli { p: a },
        ANYACCEL_RANDOM_INTEGERS => {
            let count = if count == 0 { 1 << 64 } else { i128::from(count) };
            Distribution::Integers { from: from.into(), to: i128::from(from) + count }
        }
        ANYACCEL_RANDOM_WHOLE_NUMBERS => Distribution::WholeNumbers,
        ANYACCEL_RANDOM_PERMUTATION => Distribution::Permutation,
        other => return Err(Failure::argument(format!("distribution {other}: only ANYACCEL_RANDOM_* are known"))),
    })
}

fn layout(fill: &anyaccel_random) -> Result<Layout> {
    match fill.layout {
        ANYACCEL_LAYOUT_PORTABLE => Ok(Layout::Portable),
        ANYACCEL_LAYOUT_TORCH_CUDA => Ok(Layout::TorchCuda {
            multiprocessors: fill.multiprocessors,
            threads_per_multiprocessor: fill.threads_per_multiprocessor,
        }),
        other => Err(Failure::argument(format!("layout {other}: only ANYACCEL_LAYOUT_* are known"))),
    }
}

/// Seeds the default generators of all devices. Before the start it is kept for it.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_manual_seed_all(seed: u64) -> anyaccel_result {
    call(|| Ok(Runtime::global().manual_seed_all(Seed::from(seed))?))
}
