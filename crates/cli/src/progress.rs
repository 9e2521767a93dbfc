//! A progress bar: on a terminal, on standard error, gone when the work is done. In a pipe there is none.

use crate::layout::{bytes, rate};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Often enough to move, seldom enough to cost nothing.
const EVERY: Duration = Duration::from_millis(100);

/// Characters of the bar itself.
const CELLS: usize = 30;

#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
    total: Option<u64>,
    /// What is counted; bytes if nothing is said.
    unit: Option<&'static str>,
    began: Instant,
    next: Duration,
}

impl Progress {
    /// A bar towards `total` bytes, a counter if that is unknown. `quiet` is never shown.
    pub(crate) fn new(total: Option<u64>, quiet: bool) -> Self {
        Self::of(total, None, quiet)
    }

    /// A bar towards `total` things of a kind.
    pub(crate) fn counting(total: u64, unit: &'static str, quiet: bool) -> Self {
        Self::of(Some(total), Some(unit), quiet)
    }

    fn of(total: Option<u64>, unit: Option<&'static str>, quiet: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let shown = !quiet && !dumb && io::stderr().is_terminal();
        Self { shown, total, unit, began: Instant::now(), next: EVERY }
    }

    /// So much is done.
    pub(crate) fn at(&mut self, done: u64) {
        if self.shown {
            let since = self.began.elapsed();
            if since >= self.next {
                self.next = since + EVERY;
                draw(&format!("\r{}\x1b[K", line(done, self.total, self.unit, since)));
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown && self.next > EVERY {
            draw("\r\x1b[K");
        }
    }
}

fn draw(text: &str) {
    let mut stderr = io::stderr().lock();
    // A bar that can't be drawn is no reason to stop.
    let _undrawn = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

fn line(done: u64, total: Option<u64>, unit: Option<&str>, since: Duration) -> String {
    let speed = rate(done, since.as_secs_f64());
    match total {
        None => format!("{} at {speed}", bytes(done)),
        Some(total) => {
            let share = if total > 0 { done.min(total) as f64 / total as f64 } else { 1.0 };
            let full = (share * CELLS as f64) as usize;
            let bar: String = (0..CELLS).map(|cell| if cell < full { '#' } else { '.' }).collect();
            match unit {
                None => format!("[{bar}] {:3.0} % of {} at {speed}", share * 100.0, bytes(total)),
                Some(unit) => format!("[{bar}] {done} of {total} {unit}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_says_how_far_it_is() {
        let half = line(1 << 20, Some(2 << 20), None, Duration::from_secs(1));
        assert_eq!(half, "[###############...............]  50 % of 2 MiB at 1 MiB/s");
        assert_eq!(line(1 << 20, None, None, Duration::from_secs(2)), "1 MiB at 512 KiB/s");
        assert!(line(5, Some(0), None, Duration::ZERO).contains("100 %"));
        assert!(line(9, Some(5), None, Duration::ZERO).contains("100 %"));
        let some = line(32, Some(64), Some("settings"), Duration::ZERO);
        assert_eq!(some, "[###############...............] 32 of 64 settings");
    }
}
