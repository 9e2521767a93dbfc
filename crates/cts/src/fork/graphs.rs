//! A fork while a graph is there and another one is being captured.

use super::scripts::works;
use super::{Script, in_fork};
use crate::case::{Outcome, errs, same};
use anyaccel::{Buffer, Error, Graph, GraphOptions, Runtime, Stream};

/// A graph that fills a buffer, made on a stream of its own.
fn filling(runtime: &Runtime, value: u8) -> Outcome<(Graph, Stream, Buffer)> {
    let (stream, buffer) = (runtime.stream(())?, runtime.zeros(4096)?);
    runtime.synchronize(())?;
    runtime.set_stream(&stream)?;
    let graph = runtime.graph(GraphOptions::default());
    graph.capture(|| {
        let scratch = runtime.alloc(4096)?;
        stream.fill(&scratch.all(), &[value])?;
        stream.copy(&buffer.all(), &scratch.all())
    })?;
    Ok((graph, stream, buffer))
}

fn fills(rule: &str, (graph, _, buffer): &(Graph, Stream, Buffer), value: u8) -> Outcome {
    graph.replay()?;
    same(rule, "what a replay filled", buffer.to_vec()?, vec![value; 4096])
}

/// What was captured before the fork is stale in the child, which captures and replays graphs of its own; the parent's
/// graph, and the capture that was under way, go on as if nothing had been.
pub(super) fn graphs(script: &Script) -> Outcome {
    let runtime = Runtime::global();
    let live = filling(&runtime, 3)?;
    fills("fork.restart", &live, 3)?;
    let (stream, buffer) = (runtime.stream(())?, runtime.zeros(4096)?);
    runtime.synchronize(())?;
    runtime.set_stream(&stream)?;
    let under_way = runtime.graph(GraphOptions::default());
    under_way.capture_begin()?;
    stream.fill(&buffer.slice(..2048)?, &[5])?;
    let inside = runtime.alloc(1 << 16)?;

    let parts = (live.0.clone(), under_way.clone());
    in_fork(script.patience, || {
        let child = Runtime::global();
        let (live, under_way) = parts;
        let stale = |error: &Error| matches!(error, Error::StaleHandle { .. });
        let calls: [(&str, anyaccel::Result<()>); 8] = [
            ("Graph.replay", live.replay()),
            ("Graph.instantiate", live.instantiate()),
            ("Graph.nodes", live.nodes().map(drop)),
            ("Graph.reset", live.reset()),
            ("Graph.capture_begin", live.capture_begin()),
            ("Graph.capture_end of the capture under way", under_way.capture_end()),
            ("Stream.fill on the captured stream", stream.fill(&buffer.all(), &[1])),
            ("Stream.is_capturing of it", stream.is_capturing().map(drop)),
        ];
        for (call, result) in calls {
            errs("fork.stale", &format!("{call} with a handle of the parent"), "StaleHandle", result, stale)?;
        }
        let own = filling(&child, 7)?;
        fills("fork.restart", &own, 7)?;
        // Nothing of the parent's is touched when its handles end here.
        drop((live, under_way));
        child.synchronize(())?;
        child.empty_cache()?;
        fills("fork.restart", &own, 7)?;
        works("fork.restart", &child, script.patience / 2)
    })?;

    stream.fill(&buffer.slice(2048..)?, &[6])?;
    drop(inside);
    under_way.capture_end()?;
    under_way.replay()?;
    let expected = [[5; 2048], [6; 2048]].concat();
    same("fork.restart", "a capture that a fork came into", buffer.to_vec()?, expected)?;
    fills("fork.restart", &live, 3)
}
