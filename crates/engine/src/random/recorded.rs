//! What a graph draws.

use super::{Plan, RandomError};

/// Counts what the fills of one capture take from one generator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    consumed: u64,
}

impl Recorded {
    /// Adds a fill. Returns how far from the start of a replay it begins, in words.
    pub fn draw(&mut self, plan: &Plan) -> Result<u64, RandomError> {
        let (delta, wanted) = (self.consumed, plan.consumed());
        self.consumed = delta.checked_add(wanted).ok_or(RandomError::Exhausted { offset: delta, wanted })?;
        Ok(delta)
    }

    /// What one replay takes, in words; a multiple of 4.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Generator, Layout};
    use super::*;

    #[test]
    fn replays_draw_what_the_eager_run_would_have() {
        let plans = [5, 1000, 2].map(|count| {
            let layout = Layout::TorchCuda { multiprocessors: 1, threads_per_multiprocessor: 256 };
            Plan::new(layout, count, 2, 8).unwrap()
        });
        let mut eager = Generator::new();
        let mut replayed = Generator::new();
        let mut recorded = Recorded::default();
        let deltas = plans.map(|plan| recorded.draw(&plan).unwrap());
        assert_eq!(replayed, eager, "a capture moves nothing");
        for _ in 0..3 {
            let start = replayed.replay(&recorded).unwrap();
            for (plan, delta) in plans.iter().zip(deltas) {
                let want = eager.draw(plan).unwrap();
                assert_eq!((want.seed(), want.offset()), (start.seed(), start.offset() + delta));
            }
            assert_eq!(replayed, eager);
        }
    }
}
