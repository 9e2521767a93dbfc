//! `cargo bench -p anyaccel-engine --bench memory` prints each figure of [`anyaccel_engine::bench`], its ratio to the
//! textbook in the same run, and whether the goal is met.

use anyaccel_engine::bench::{Effort, Row, memory};

fn main() {
    println!("{:<42} {:>14} {:>9} {:>8} {:>6}", "", "ours", "textbook", "ratio", "goal");
    memory(Effort::Full, &mut |row: Row| {
        let Row { name, unit, ours, textbook, goal } = row;
        let textbook = textbook.map_or("n/a".into(), |textbook| format!("{textbook:.1}"));
        let ratio = row.ratio().map_or(String::new(), |ratio| format!("{ratio:.2}x"));
        let verdict = if row.is_met() { "met" } else { "MISSED" };
        println!("{name:<42} {ours:>8.1} {unit:<5} {textbook:>9} {ratio:>8} {goal:>6.0} {verdict}");
    });
}
