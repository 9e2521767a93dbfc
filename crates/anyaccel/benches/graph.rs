//! What graphs cost on the host device: `cargo bench -p anyaccel --bench graph`.
//!
//! Each figure is the best and the median of several rounds, in nanoseconds a node, beside the same work enqueued and run
//! without a graph in the same run. Absolute times on a shared machine are noise; the ratio is what to look at.

use anyaccel::{Buffer, Graph, GraphOptions, Launch, Runtime, Stream};
use std::time::Instant;

const ROUNDS: usize = 25;
const NODES: usize = 1000;

/// The best and the median of several rounds, in nanoseconds a node.
fn measure(nodes: usize, mut round: impl FnMut() -> anyaccel::Result<()>) -> anyaccel::Result<(f64, f64)> {
    let mut figures = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        round()?;
        figures.push(start.elapsed().as_nanos() as f64 / nodes as f64);
    }
    figures.sort_by(f64::total_cmp);
    Ok((figures[0], figures[ROUNDS / 2]))
}

fn line(what: &str, (best, median): (f64, f64), goal: &str, eager: Option<f64>) {
    let ratio =
        eager.map_or(String::new(), |eager| format!("{:>7.1}x faster than eager ({eager:.1} ns)", eager / best));
    println!("{what:<64} {best:>8.1} {median:>8.1}   {goal:<10} {ratio}");
}

/// Work of a thousand operations.
type Program<'a> = &'a dyn Fn() -> anyaccel::Result<()>;

/// A program captured, replayed, and run without a graph.
fn compare(
    what: &str,
    runtime: &Runtime,
    stream: &Stream,
    nodes: usize,
    goal: &str,
    program: Program<'_>,
) -> anyaccel::Result<Graph> {
    program()?;
    stream.synchronize()?;
    let (eager, _) = measure(nodes, || program().and_then(|()| stream.synchronize()))?;
    let graph = runtime.graph(GraphOptions::default());
    let made = measure(nodes, || {
        graph.reset()?;
        graph.capture_begin()?;
        program()?;
        graph.capture_end()
    })?;
    let kept = runtime.graph(GraphOptions { keep_graph: true, ..GraphOptions::default() });
    let captured = measure(nodes, || {
        kept.reset()?;
        kept.capture_begin()?;
        program()?;
        kept.capture_end()
    })?;
    let count = graph.nodes()?.len();
    let replayed = measure(nodes, || graph.replay().and_then(|()| stream.synchronize()))?;
    line(&format!("{what}: replay, wait ({count} nodes)"), replayed, goal, Some(eager));
    line(&format!("{what}: capture"), captured, "<= 300", Some(eager));
    line(&format!("{what}: capture and instantiate"), made, "", Some(eager));
    Ok(graph)
}

/// A chain of built-in operations that do next to nothing.
fn tiny_fills(stream: &Stream, words: &Buffer, n: usize) -> anyaccel::Result<()> {
    for at in 0..n as u64 {
        // Never next to the one before, so that nothing is merged.
        let at = 8 * (at * 7 % 500);
        stream.fill(&words.slice(at..at + 8)?, &[1])?;
    }
    Ok(())
}

fn main() -> anyaccel::Result<()> {
    let runtime = Runtime::builder().backend("host").build()?;
    let stream = runtime.stream(())?;
    runtime.set_stream(&stream)?;
    let words = runtime.zeros(4096)?;
    let big = runtime.zeros(64 << 20)?;
    stream.synchronize()?;
    println!("{:<64} {:>8} {:>8}   {:<10} ratio of the best", "ns a node", "best", "median", "goal");

    compare("1000 fills of 8 bytes in a chain", &runtime, &stream, NODES, "<= 50", &|| {
        tiny_fills(&stream, &words, NODES)
    })?;

    compare("1000 neighbouring fills, merged", &runtime, &stream, NODES, "", &|| {
        (0..NODES as u64 / 2).try_for_each(|at| stream.fill(&words.slice(8 * at..8 * at + 8)?, &[1]))?;
        (0..NODES as u64 / 2).try_for_each(|at| stream.fill(&words.slice(8 * at..8 * at + 8)?, &[2]))
    })?;

    let tiny = runtime.host_kernel((), |_, _| ())?;
    compare("1000 Rust kernels in a chain", &runtime, &stream, NODES, "", &|| {
        // SAFETY: the kernel takes no arguments.
        (0..NODES).try_for_each(|_| unsafe { stream.launch(&tiny, Launch::linear(1, 1), &[]) })
    })?;

    // Forked: two streams hand work to each other, five hundred times.
    let other = runtime.stream(())?;
    compare("500 handoffs between two streams, fills", &runtime, &stream, NODES / 2, "<= 150", &|| {
        for at in 0..NODES as u64 / 4 {
            let at = 16 * (at * 7 % 250);
            stream.fill(&words.slice(at..at + 8)?, &[1])?;
            other.wait_stream(&stream)?;
            other.fill(&words.slice(at + 8..at + 16)?, &[2])?;
            stream.wait_stream(&other)?;
        }
        Ok(())
    })?;
    compare("500 handoffs between two streams, Rust kernels", &runtime, &stream, NODES / 2, "<= 150", &|| {
        for _ in 0..NODES / 4 {
            // SAFETY: the kernel takes no arguments.
            unsafe { stream.launch(&tiny, Launch::linear(1, 1), &[])? };
            other.wait_stream(&stream)?;
            // SAFETY: as above.
            unsafe { other.launch(&tiny, Launch::linear(1, 1), &[])? };
            stream.wait_stream(&other)?;
        }
        Ok(())
    })?;
    compare("fork and join of 4 Rust kernels, 200 times", &runtime, &stream, 800, "<= 150", &|| {
        let (third, fourth) = (runtime.default_stream(())?, &other);
        for _ in 0..200 {
            for side in [&third, fourth] {
                side.wait_stream(&stream)?;
                // SAFETY: as above.
                unsafe { side.launch(&tiny, Launch::linear(1, 1), &[])? };
            }
            // SAFETY: as above.
            (0..2).try_for_each(|_| unsafe { stream.launch(&tiny, Launch::linear(1, 1), &[]) })?;
            stream.wait_stream(&third)?;
            stream.wait_stream(fourth)?;
        }
        Ok(())
    })?;

    // Two independent branches of real work: how much of two cores a graph uses.
    let halves = [big.slice(..32 << 20)?, big.slice(32 << 20..)?];
    let counts = [runtime.zeros(2048)?, runtime.zeros(2048)?];
    stream.synchronize()?;
    let serial = runtime.graph(GraphOptions::default());
    serial.capture(|| (0..2).try_for_each(|at| stream.histogram(&counts[at].all(), &halves[at])))?;
    let forked = runtime.graph(GraphOptions::default());
    forked.capture(|| {
        other.wait_stream(&stream)?;
        stream.histogram(&counts[0].all(), &halves[0])?;
        other.histogram(&counts[1].all(), &halves[1])?;
        stream.wait_stream(&other)
    })?;
    let one = measure(2, || serial.replay().and_then(|()| stream.synchronize()))?;
    let two = measure(2, || forked.replay().and_then(|()| stream.synchronize()))?;
    println!(
        "two histograms of 32 MiB: {:.2} ms in a chain, {:.2} ms in two branches ({} cores)",
        one.0 * 2.0 / 1e6,
        two.0 * 2.0 / 1e6,
        std::thread::available_parallelism().map_or(0, usize::from)
    );
    Ok(())
}
