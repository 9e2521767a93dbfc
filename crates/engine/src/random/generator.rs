//! A generator.

use super::{MAX_OFFSET, Plan, RandomError, Recorded, Seed, State};

/// The seed of a generator that nobody seeded and that is not a device's own.
pub const DEFAULT_SEED: u64 = 67_280_421_310_721;

/// A seed and an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generator {
    state: State,
    /// Whether the seed was chosen and not drawn: then a child of fork keeps it.
    chosen: bool,
}

impl Default for Generator {
    fn default() -> Generator {
        Generator::new()
    }
}

impl Generator {
    /// A free-standing generator: [`DEFAULT_SEED`], offset 0.
    pub fn new() -> Generator {
        Generator { state: begin(Seed::from(DEFAULT_SEED)), chosen: true }
    }

    /// A device's own generator: 53 of the bits given are its seed.
    pub fn from_entropy(entropy: u64) -> Generator {
        Generator { state: begin(Seed::from_entropy(entropy)), chosen: false }
    }

    /// The seed.
    pub fn initial_seed(&self) -> u64 {
        self.state.seed()
    }

    /// Takes this seed, and the offset 0.
    pub fn manual_seed(&mut self, seed: Seed) {
        *self = Generator { state: begin(seed), chosen: true };
    }

    /// Takes 53 of the bits given as its seed, and the offset 0; returns the seed.
    pub fn seed(&mut self, entropy: u64) -> u64 {
        *self = Generator::from_entropy(entropy);
        self.initial_seed()
    }

    /// Where it is, in words from the start of the sequence; a multiple of 4.
    pub fn offset(&self) -> u64 {
        self.state.offset()
    }

    /// Goes to a place in the sequence; refused unless it is a multiple of 4 up to [`MAX_OFFSET`].
    pub fn set_offset(&mut self, offset: i128) -> Result<(), RandomError> {
        let known = u64::try_from(offset).map_err(|_| RandomError::Offset { given: offset })?;
        self.state = State::new(self.state.seed(), known)?;
        Ok(())
    }

    /// Seed and offset.
    pub fn state(&self) -> State {
        self.state
    }

    /// Takes seed and offset of a state.
    pub fn set_state(&mut self, state: State) {
        *self = Generator { state, chosen: true };
    }

    /// Whether the seed was chosen and not drawn: then a child of fork keeps it.
    pub fn is_chosen(&self) -> bool {
        self.chosen
    }

    /// Moves on by what a fill takes. The state returned is where it begins: an offset of the plan's
    /// [`Part`](super::Part) is added to that of the state.
    pub fn draw(&mut self, plan: &Plan) -> Result<State, RandomError> {
        self.advance(plan.consumed())
    }

    /// Moves on by what a graph takes in one replay. The state returned is what its cell has to hold before.
    pub fn replay(&mut self, recorded: &Recorded) -> Result<State, RandomError> {
        self.advance(recorded.consumed())
    }

    fn advance(&mut self, words: u64) -> Result<State, RandomError> {
        let (before, offset) = (self.state, self.state.offset());
        // `words` is a multiple of 4, as is the offset.
        let after = offset.checked_add(words).filter(|&after| after <= MAX_OFFSET);
        let after = after.ok_or(RandomError::Exhausted { offset, wanted: words })?;
        self.state = State::new(before.seed(), after)?;
        Ok(before)
    }

    /// The generator of the same device in a child of fork: it starts again from a seed that was chosen, and from the bits
    /// given if it was drawn, so that parent and child do not draw the same numbers.
    #[must_use]
    pub fn in_child(&self, entropy: u64) -> Generator {
        if self.chosen {
            Generator { state: begin(Seed::from(self.initial_seed())), chosen: true }
        } else {
            Generator::from_entropy(entropy)
        }
    }
}

fn begin(seed: Seed) -> State {
    State::new(seed.get(), 0).unwrap_or_else(|_| unreachable!("0 is a good offset"))
}

#[cfg(test)]
mod tests {
    use super::super::Layout;
    use super::*;

    fn plan(count: u64) -> Plan {
        Plan::new(Layout::Portable, count, 4, 4).unwrap()
    }

    #[test]
    fn generators_begin_as_told() {
        let generator = Generator::new();
        assert_eq!((generator.initial_seed(), generator.offset()), (67_280_421_310_721, 0));
        assert_eq!(Generator::from_entropy(u64::MAX).initial_seed(), (1 << 53) - 1);
        let mut generator = Generator::default();
        generator.draw(&plan(10)).unwrap();
        assert_eq!(generator.offset(), 12);
        generator.manual_seed(Seed::new(-1).unwrap());
        assert_eq!((generator.initial_seed(), generator.offset()), (u64::MAX, 0));
        generator.set_offset(8).unwrap();
        assert_eq!(generator.seed(1 << 60 | 3), 3);
        assert_eq!((generator.initial_seed(), generator.offset()), (3, 0));
    }

    #[test]
    fn a_draw_begins_where_the_last_one_ended() {
        let mut generator = Generator::new();
        let mut offsets = Vec::new();
        for count in [1, 4, 5, 0, 100] {
            offsets.push(generator.draw(&plan(count)).unwrap().offset());
        }
        offsets.push(generator.offset());
        assert_eq!(offsets, [0, 4, 8, 16, 16, 116]);
    }

    #[test]
    fn a_state_brings_back_what_was_drawn() {
        let mut generator = Generator::from_entropy(99);
        generator.draw(&plan(7)).unwrap();
        let saved = generator.state();
        let first = generator.draw(&plan(9)).unwrap();
        generator.manual_seed(5_u64.into());
        generator.set_state(State::from_bytes(&saved.to_bytes()).unwrap());
        assert_eq!(generator.draw(&plan(9)), Ok(first));
    }

    #[test]
    fn bad_offsets_change_nothing() {
        let mut generator = Generator::new();
        generator.set_offset(44).unwrap();
        for given in [-4, 1, 6, 1 << 63, i128::MAX, i128::MIN] {
            assert_eq!(generator.set_offset(given), Err(RandomError::Offset { given }));
            assert_eq!(generator.offset(), 44);
        }
    }

    #[test]
    fn the_end_of_a_sequence_is_an_error_that_changes_nothing() {
        let mut generator = Generator::new();
        generator.set_offset(i128::from(MAX_OFFSET) - 8).unwrap();
        let before = generator.clone();
        let error = generator.draw(&plan(12)).unwrap_err();
        assert_eq!(error, RandomError::Exhausted { offset: MAX_OFFSET - 8, wanted: 12 });
        assert_eq!(generator, before);
        assert!(generator.draw(&plan(8)).is_ok());
        assert_eq!(generator.offset(), MAX_OFFSET);
    }

    #[test]
    fn a_child_keeps_only_a_seed_that_was_chosen() {
        let mut generator = Generator::from_entropy(7);
        assert_eq!(generator.in_child(8), Generator::from_entropy(8));
        generator.manual_seed(5_u64.into());
        generator.draw(&plan(100)).unwrap();
        let child = generator.in_child(8);
        assert_eq!((child.initial_seed(), child.offset()), (5, 0));
        assert_eq!(child.in_child(9), child);
        generator.seed(11);
        assert_eq!(generator.in_child(8).initial_seed(), 8);
        generator.set_state(State::new(3, 12).unwrap());
        assert_eq!((generator.in_child(8).initial_seed(), generator.in_child(8).offset()), (3, 0));
    }
}
