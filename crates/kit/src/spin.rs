//! Looking for something for a short while before sleeping.

use std::time::{Duration, Instant};

/// Looks before the core is offered to others: less than what a hand-over between two cores takes.
const ALONE: u32 = 16;
/// Looks between two offers.
const LOOKS: u32 = 2;

/// Looks until `done` or for about `budget`, and says whether it came.
///
/// The first looks burn the core, since most answers come then. After that it is offered to others all the time: whoever
/// makes the answer may sit on the same core, and then spinning is what keeps the answer away.
pub fn spin(budget: Duration, mut done: impl FnMut() -> bool) -> bool {
    for _ in 0..ALONE {
        if done() {
            return true;
        }
        std::hint::spin_loop();
    }
    let begin = Instant::now();
    loop {
        std::thread::yield_now();
        for _ in 0..LOOKS {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        if begin.elapsed() > budget {
            return done();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_the_answer_or_the_budget() {
        let mut looks = 0;
        assert!(spin(Duration::from_secs(100), || {
            looks += 1;
            looks == 1000
        }));
        assert_eq!(looks, 1000);
        let begin = Instant::now();
        assert!(!spin(Duration::from_millis(2), || false));
        assert!(begin.elapsed() >= Duration::from_millis(2));
    }
}
