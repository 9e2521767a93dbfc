//! Work captured once and replayed: streams that fork and join, memory of the graph's own, numbers that differ.
//!
//! `cargo run -p anyaccel --example 05_graphs`

use anyaccel::random::{Distribution, Options};
use anyaccel::{DType, Error, GraphOptions, Runtime};

fn main() -> anyaccel::Result<()> {
    let runtime = Runtime::builder().backend("host").build()?;
    let (stream, side) = (runtime.stream(())?, runtime.stream(())?);
    let _current = stream.enter()?;
    let counts = runtime.zeros(2048)?;
    runtime.manual_seed(0)?;

    // Recorded, not run. The scratch buffer comes from the graph's private pool and may be dropped at once.
    let graph = runtime.graph(GraphOptions::default());
    graph.enable_debug_mode();
    graph.capture(|| {
        let scratch = runtime.alloc(1 << 20)?;
        let (left, right) = (scratch.slice(..1 << 19)?, scratch.slice(1 << 19..)?);
        side.wait_stream(&stream)?; // fork: from here on the side stream is captured too
        stream.random(&left, DType::U8, Distribution::Bits, &Options::default())?;
        side.fill(&right, b"a")?;
        stream.wait_stream(&side)?; // join
        stream.histogram(&counts.all(), &scratch.all())
    })?;
    for node in graph.nodes()? {
        println!("{:<12} {:>8} bytes after {:?}", node.operation, node.bytes.unwrap_or(0), node.after);
    }

    // Each replay draws numbers of its own.
    graph.replay_n(3)?;
    let counts = counts.to_vec()?;
    let of = |byte: u8| u64::from_le_bytes(counts[8 * usize::from(byte)..][..8].try_into().unwrap_or_default());
    println!("'a' {} times, 'b' {} times in 3 MiB", of(b'a'), of(b'b'));
    assert_eq!((0..=255).map(of).sum::<u64>(), 3 << 20);

    // What can't be captured is refused by name; the scope gives the capture up and restores everything.
    let failed = runtime.graph(GraphOptions::default()).capture(|| stream.synchronize());
    match failed {
        Err(Error::Graph(refusal)) => println!("refused: {refusal}"),
        other => other?,
    }
    stream.synchronize()
}
