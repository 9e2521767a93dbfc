//! What becomes of generators in a forked child.

use super::{FROZEN, Script, in_fork};
use crate::case::{Outcome, errs, expect, fail, same};
use crate::cases::{READS, SETTERS};
use crate::words::plain;
use anyaccel::random::{self, Distribution, Generator, Options};
use anyaccel::{Error, Runtime};

const RULE: &str = "random.child";

/// Of the first two devices, however many there are.
fn seeds_and_offsets(runtime: &Runtime) -> Outcome<Vec<(u64, u64)>> {
    let states = runtime.get_rng_state_all()?;
    Ok(states.into_iter().take(2).map(|state| (state.seed(), state.offset())).collect())
}

fn draw(runtime: &Runtime, options: &Options<'_>) -> Outcome<Vec<u32>> {
    let (stream, words) = (runtime.current_stream(())?, runtime.array::<u32>(8)?);
    words.random(&stream, Distribution::Bits, options)?;
    Ok(words.to_vec()?)
}

/// Forked off a runtime that has started.
pub(super) fn live(script: &Script) -> Outcome {
    let runtime = Runtime::global();
    let own = Generator::seeded(11)?;
    let unseeded = seeds_and_offsets(&runtime)?;
    same(RULE, "whether there are two devices", unseeded.len(), 2)?;
    runtime.manual_seed(5)?;
    let drawn = draw(&runtime, &Options::default())?;
    let options = Options { generator: Some(&own), ..Options::default() };
    draw(&runtime, &options)?;
    in_fork(script.patience, || {
        let child = Runtime::global();
        let seen = seeds_and_offsets(&child)?;
        same(RULE, "a generator that was seeded", seen[0], (5, 0))?;
        expect(RULE, seen[1].0 != unseeded[1].0, "a seed of its own where none was chosen", plain(&seen))?;
        same(RULE, "what the child draws", draw(&child, &Options::default())?, drawn.clone())?;
        same(RULE, "where a free generator goes on", (own.initial_seed(), own.offset()), (11, 8))?;
        draw(&child, &options)?;
        same(RULE, "where it is then", own.offset(), 16)?;
        // A child of the child: the seeds that the child has chosen since, and those that it has itself inherited.
        random::seed()?;
        let _device = child.device_index(1)?;
        child.manual_seed(9)?;
        let before = seeds_and_offsets(&child)?;
        in_fork(script.patience / 2, || {
            let seen = seeds_and_offsets(&Runtime::global())?;
            same(RULE, "a seed of the child", seen[1], (9, 0))?;
            expect(RULE, seen[0].0 != before[0].0, "a new seed for one that was drawn", plain(&seen))
        })
    })?;
    same(RULE, "the parent's free generator", own.offset(), 8)?;
    same(RULE, "the parent's own", seeds_and_offsets(&runtime)?[0], (5, 8))
}

/// Forked off a runtime that has not started, with seeds that wait.
pub(super) fn fresh(script: &Script) -> Outcome {
    let runtime = Runtime::global();
    random::manual_seed_all(3)?;
    random::set_rng_state(
        random::State::from_bytes(&[7, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]).map_err(Error::from)?,
        1,
    )?;
    in_fork(script.patience, || {
        let child = Runtime::global();
        same(RULE, "whether the child has started", child.is_started(), false)?;
        // Once more, without a start in between.
        in_fork(script.patience / 2, || {
            same(RULE, "seeds of a child's child", seeds_and_offsets(&Runtime::global())?, vec![(3, 0), (7, 0)])
        })?;
        random::manual_seed(6)?;
        same(RULE, "seeds of the child", seeds_and_offsets(&child)?, vec![(6, 0), (7, 0)])
    })?;
    same(RULE, "whether the parent has started", runtime.is_started(), false)?;
    same(RULE, "the parent's states", seeds_and_offsets(&runtime)?, vec![(3, 0), (7, 4)])
}

/// Of a kind that can't start again: seeding does nothing, reading is the one error.
pub(super) fn frozen(script: &Script) -> Outcome {
    let runtime = Runtime::global();
    runtime.manual_seed(5)?;
    runtime.initial_seed(())?;
    in_fork(script.patience, || {
        let child = Runtime::global();
        for (name, call) in SETTERS {
            if let Err(error) = call(&child) {
                return fail("fork.no-ops", format!("{name} to do nothing in a child"), error.to_string());
            }
        }
        same("fork.no-ops", "pending calls", child.pending_calls(), 0)?;
        for (name, call) in READS {
            let right = |error: &Error| {
                matches!(error, Error::ForkedChild { kind, call, .. }
                    if kind.name() == FROZEN && *call == "initial_seed")
            };
            errs("fork.one-error", &format!("{name} in a child"), "ForkedChild", call(&child), right)?;
        }
        Ok(())
    })
}
