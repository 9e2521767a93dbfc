//! Several generators saved and restored together.

use super::{Generator, RandomError, State};

/// Generators as they were, to be brought back by a scope that draws without being noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot(Vec<Generator>);

impl Snapshot {
    /// Saves generators as they are now.
    pub fn take<'a>(generators: impl IntoIterator<Item = &'a Generator>) -> Snapshot {
        Snapshot(generators.into_iter().cloned().collect())
    }

    /// Brings them back, in the same order. Refused, with nothing changed, unless they are as many.
    pub fn restore(&self, generators: &mut [&mut Generator]) -> Result<(), RandomError> {
        same_count(self.0.len(), generators.len())?;
        for (generator, saved) in generators.iter_mut().zip(&self.0) {
            (*generator).clone_from(saved);
        }
        Ok(())
    }
}

/// Gives each generator its state. Refused, with nothing changed, unless they are as many.
pub fn set_states(generators: &mut [&mut Generator], states: &[State]) -> Result<(), RandomError> {
    same_count(states.len(), generators.len())?;
    for (generator, &state) in generators.iter_mut().zip(states) {
        generator.set_state(state);
    }
    Ok(())
}

fn same_count(given: usize, expected: usize) -> Result<(), RandomError> {
    if given == expected { Ok(()) } else { Err(RandomError::StateCount { given, expected }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_in_between_leaves_no_trace() {
        let mut a = Generator::from_entropy(1);
        let mut b = Generator::new();
        b.set_offset(40).unwrap();
        let (a_before, b_before) = (a.clone(), b.clone());
        let snapshot = Snapshot::take([&a, &b]);
        a.manual_seed(9_u64.into());
        b.set_offset(80).unwrap();
        snapshot.restore(&mut [&mut a, &mut b]).unwrap();
        assert_eq!((&a, &b), (&a_before, &b_before));
        assert_eq!(a.in_child(77), Generator::from_entropy(77), "it is still one that was not seeded");
    }

    #[test]
    fn other_numbers_of_generators_are_refused() {
        let (mut a, mut b) = (Generator::new(), Generator::new());
        let snapshot = Snapshot::take([&a, &b]);
        a.set_offset(8).unwrap();
        let moved = a.clone();
        assert_eq!(snapshot.restore(&mut [&mut a]), Err(RandomError::StateCount { given: 2, expected: 1 }));
        let error = set_states(&mut [&mut a, &mut b], &[b_state(); 3]).unwrap_err();
        assert_eq!(error.to_string(), "3 states for 2 generators");
        assert_eq!((&a, &b), (&moved, &Generator::new()));
        set_states(&mut [&mut a, &mut b], &[b_state(); 2]).unwrap();
        assert_eq!((a.state(), b.state()), (b_state(), b_state()));
    }

    fn b_state() -> State {
        State::new(4, 16).unwrap()
    }
}
