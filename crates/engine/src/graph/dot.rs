//! A program as a Graphviz document.

use super::program::{Program, Work};
use std::fmt;

/// Prints a [`Program`] in the DOT language: a box for each node with its number, operation, size and stream; an arrow
/// from each node to those that wait for it.
#[derive(Clone, Copy, Debug)]
pub struct Dot<'a, W> {
    program: &'a Program<W>,
    name: &'a str,
    streams: &'a [String],
}

impl<'a, W> Dot<'a, W> {
    /// A document named `name`; `streams` are the names of the program's lanes, in their order.
    pub fn new(program: &'a Program<W>, name: &'a str, streams: &'a [String]) -> Self {
        Self { program, name, streams }
    }
}

/// Text inside of double quotes.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                c if c.is_control() => f.write_str(" ")?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut unit = (self.0, "bytes");
        for name in ["KiB", "MiB", "GiB", "TiB"] {
            if unit.0 >= 1024 && unit.0.is_multiple_of(1024) {
                unit = (unit.0 / 1024, name);
            }
        }
        write!(f, "{} {}", unit.0, if self.0 == 1 { "byte" } else { unit.1 })
    }
}

/// Hues that differ between neighbours: a step of the golden ratio.
fn hue(lane: u32) -> f64 {
    (f64::from(lane) * 0.618_034 + 0.58).fract()
}

impl<W: Work> fmt::Display for Dot<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "digraph \"{}\" {{", Quoted(self.name))?;
        writeln!(f, "  rankdir=TB;")?;
        writeln!(f, "  node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica\", fontsize=11];")?;
        for (at, node) in self.program.nodes().iter().enumerate() {
            write!(f, "  n{at} [label=\"{at}: {}", Quoted(node.work.name()))?;
            if let Some(bytes) = node.work.bytes() {
                write!(f, "\\n{}", Size(bytes))?;
            }
            match self.streams.get(node.lane as usize) {
                Some(stream) => write!(f, "\\n{}", Quoted(stream))?,
                None => write!(f, "\\nstream {}", node.lane)?,
            }
            writeln!(f, "\", fillcolor=\"{:.3} 0.25 1.000\"];", hue(node.lane))?;
        }
        for at in 0..self.program.nodes().len() as u32 {
            for before in self.program.after(at) {
                writeln!(f, "  n{before} -> n{at};")?;
            }
        }
        writeln!(f, "}}")
    }
}
