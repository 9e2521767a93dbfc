//! Looking for something for a short while before sleeping.

use std::time::{Duration, Instant};

/// Looks until `done` or for about `budget`, and says whether it came.
///
/// The first moments burn the core, since most answers come then; after an eighth of the budget the core is offered to
/// others between looks, so that two spinning threads on one core don't keep each other from what they wait for.
pub fn spin(budget: Duration, mut done: impl FnMut() -> bool) -> bool {
    for _ in 0..64 {
        if done() {
            return true;
        }
        std::hint::spin_loop();
    }
    let begin = Instant::now();
    loop {
        for _ in 0..8 {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        let spent = begin.elapsed();
        if spent > budget {
            return done();
        }
        if spent > budget / 8 {
            std::thread::yield_now();
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
