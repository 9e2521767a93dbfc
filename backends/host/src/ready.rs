//! What waits for a worker: a queue for each priority, with ageing.
//!
//! A pop takes from the most urgent level that has something, but a level that was passed over [`PATIENCE`] times in a row
//! goes first. So the least urgent work is slowed down and never starved. Plain data: the pool's lock guards it.

use std::collections::VecDeque;

/// How many pops a level lets others go before.
const PATIENCE: u32 = 32;

#[derive(Debug)]
struct Level<T> {
    queue: VecDeque<T>,
    passed: u32,
}

/// Queues by level, 0 the least urgent.
#[derive(Debug)]
pub(crate) struct Ready<T> {
    levels: Vec<Level<T>>,
    len: usize,
}

impl<T> Ready<T> {
    pub(crate) fn new(levels: usize) -> Self {
        Self { levels: (0..levels).map(|_| Level { queue: VecDeque::new(), passed: 0 }).collect(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends to a level; one that does not exist counts as the most urgent.
    pub(crate) fn push(&mut self, level: usize, item: T) {
        let most_urgent = self.levels.len() - 1;
        self.levels[level.min(most_urgent)].queue.push_back(item);
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let waiting = |level: &Level<T>| !level.queue.is_empty();
        let urgent = self.levels.iter().rposition(waiting)?;
        let chosen = self.levels.iter().position(|level| waiting(level) && level.passed >= PATIENCE).unwrap_or(urgent);
        for (at, level) in self.levels.iter_mut().enumerate() {
            if at == chosen || level.queue.is_empty() {
                level.passed = 0;
            } else if at < urgent {
                level.passed += 1;
            }
        }
        self.len -= 1;
        self.levels[chosen].queue.pop_front()
    }

    /// Everything, in no particular order.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        self.len = 0;
        self.levels.iter_mut().flat_map(|level| level.queue.drain(..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_urgent_go_first_and_each_level_in_order() {
        let mut ready = Ready::new(3);
        for (level, item) in [(0, "a"), (2, "b"), (1, "c"), (2, "d"), (9, "e")] {
            ready.push(level, item);
        }
        assert_eq!(ready.len(), 5);
        let order: Vec<_> = std::iter::from_fn(|| ready.pop()).collect();
        assert_eq!(order, ["b", "d", "e", "c", "a"]);
        assert_eq!(ready.len(), 0);
    }

    #[test]
    fn the_least_urgent_never_starves() {
        let mut ready = Ready::new(4);
        ready.push(0, 0);
        ready.push(1, 1);
        let mut seen = Vec::new();
        for pop in 0..200 {
            ready.push(3, 3);
            ready.push(3, 3);
            match ready.pop() {
                Some(3) => {}
                other => seen.push((pop, other)),
            }
        }
        assert_eq!(seen, [(PATIENCE, Some(0)), (PATIENCE + 1, Some(1))]);
    }

    #[test]
    fn a_level_that_was_served_waits_anew() {
        let mut ready = Ready::new(2);
        let mut low = 0;
        for _ in 0..10 * (PATIENCE + 1) {
            ready.push(0, 'l');
            ready.push(1, 'h');
            low += u32::from(ready.pop() == Some('l'));
        }
        assert_eq!(low, 10, "one in {}", PATIENCE + 1);
    }
}
