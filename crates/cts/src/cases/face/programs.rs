//! What streams do with work, written once and run in each way: enqueued at once, captured into a graph that is replayed
//! by the device, captured and replayed by the engine. Three rounds each, from the same start: a graph is captured once and
//! replayed three times.

use super::Face;
use crate::case::{Capability, Case, Outcome, same, same_bytes};
use crate::env::Env;
use crate::lab::{bytes, locked};
use crate::ways::Way;
use anyaccel::random::{Distribution, Generator, Options};
use anyaccel::{Buffer, DType, EventOptions, GraphOptions, LaunchArg, Result, Stream};
use anyaccel_hal::{KernelArg, Launch, WorkGroup};
use anyaccel_kernels::histogram;
use std::sync::{Arc, Mutex};

pub(super) const CASES: &[Case] = &[
    Case::face("work.copies-in-order", &["work.copies", "graph.replay"], copies_in_order),
    Case::face("work.pinned-ends-in-order", &["work.pinned", "graph.replay"], pinned_ends_in_order),
    Case::face("work.fills-and-writes", &["work.copies", "graph.replay"], fills_and_writes),
    Case::face("work.neighbours", &["work.copies", "graph.replay"], neighbours),
    Case::face("work.scratch", &["work.dropped-buffer", "graph.pool"], scratch),
    Case::face("work.built-ins-in-order", &["work.built-ins", "graph.replay"], built_ins_in_order),
    Case::face("work.kernels-in-order", &["work.kernels", "graph.replay"], kernels_in_order)
        .needs(&[Capability::HostKernels]),
    Case::face("work.functions-in-order", &["function.order", "graph.replay"], functions_in_order),
    Case::face("work.behind-an-event", &["event.wait", "graph.events"], behind_an_event),
    Case::face("work.event-recorded-again", &["event.record-again", "graph.events"], event_recorded_again),
    Case::face("work.fork-and-join", &["stream.wait", "graph.events"], fork_and_join),
    Case::face("work.to-and-fro", &["stream.wait", "event.wait", "graph.events"], to_and_fro),
    Case::face("work.across-devices-in-order", &["work.across-devices", "graph.replay"], across_devices)
        .devices(2)
        .needs_captured(&[Capability::Peers]),
    Case::face("work.random-in-order", &["random.stream-order", "random.offset", "graph.replay"], random_in_order)
        .needs_captured(&[Capability::Builtins]),
];

/// How often the work is done.
const ROUNDS: u8 = 3;

/// A runtime with a current stream, and the way in which work is to be done.
struct Stage {
    face: Face,
    way: Way,
    stream: Stream,
}

impl Stage {
    fn new(env: &Env) -> Outcome<Self> {
        let face = Face::new(env)?;
        let stream = face.runtime.stream(())?;
        face.runtime.set_stream(&stream)?;
        Ok(Self { face, way: env.way, stream })
    }

    /// Does `work` in each round, between `before` and `after`, which see the round's number.
    fn rounds(
        &self,
        mut before: impl FnMut(u8) -> Outcome,
        work: impl Fn() -> Result<()>,
        mut after: impl FnMut(u8) -> Outcome,
    ) -> Outcome {
        let graph = match self.way {
            Way::Eager => None,
            Way::Captured | Way::Recorded => Some(self.face.runtime.graph(GraphOptions::default())),
        };
        self.face.runtime.synchronize(())?;
        if let Some(graph) = &graph {
            graph.capture(&work)?;
        }
        for round in 0..ROUNDS {
            before(round)?;
            match &graph {
                Some(graph) => graph.replay()?,
                None => work()?,
            }
            after(round)?;
        }
        Ok(())
    }

    fn zeros(&self, len: u64) -> Outcome<Buffer> {
        Ok(self.face.runtime.zeros(len)?)
    }

    fn stream(&self) -> Outcome<Stream> {
        Ok(self.face.runtime.stream(())?)
    }
}

fn copies_in_order(env: &Env) -> Outcome {
    let stage = Stage::new(env)?;
    let (a, b) = (stage.zeros(4096)?, stage.zeros(4096)?);
    let content = bytes(env.seed, 4096);
    let stream = &stage.stream;
    stage.rounds(
        |round| Ok(stream.upload(&a.all(), &rotated(&content, round))?),
        || {
            stream.copy(&b.all(), &a.all())?;
            stream.copy(&a.slice(..1000)?, &b.slice(3000..4000)?)?;
            stream.copy(&b.slice(1..2)?, &a.slice(999..1000)?)?;
            stream.copy(&a.slice(2048..)?, &b.slice(..2048)?)
        },
        |round| {
            let mut seen = rotated(&content, round);
            let mut other = seen.clone();
            seen[..1000].copy_from_slice(&other[3000..4000]);
            other[1] = seen[999];
            seen[2048..].copy_from_slice(&other[..2048]);
            same_bytes("work.copies", &format!("round {round}"), &a.to_vec()?, &seen)
        },
    )
}

/// Another content each round.
fn rotated(content: &[u8], round: u8) -> Vec<u8> {
    content.iter().map(|byte| byte.rotate_left(u32::from(round)) ^ round).collect()
}

fn pinned_ends_in_order(env: &Env) -> Outcome {
    let stage = Stage::new(env)?;
    let runtime = &stage.face.runtime;
    let buffer = stage.zeros(1 << 16)?;
    let up = Mutex::new(runtime.pinned(1 << 16)?);
    let down = Mutex::new(runtime.pinned(1 << 16)?);
    let stream = &stage.stream;
    stage.rounds(
        |round| Ok(locked(&up).with_mut(|bytes| bytes.fill(round + 1))?),
        || {
            stream.upload_pinned(&buffer.all(), &locked(&up), 0)?;
            stream.fill(&buffer.slice(10..20)?, &[0xEE])?;
            stream.download_pinned(&mut locked(&down), 0, &buffer.all())?;
            stream.fill(&buffer.all(), &[0])
        },
        |round| {
            let mut expected = vec![round + 1; 1 << 16];
            expected[10..20].fill(0xEE);
            let seen = locked(&down).with(<[u8]>::to_vec)?;
            same_bytes("work.pinned", &format!("what came down in round {round}"), &seen, &expected)?;
            same_bytes("work.pinned", "a fill behind it", &buffer.to_vec()?, &[0; 1 << 16])
        },
    )
}

fn fills_and_writes(env: &Env) -> Outcome {
    let stage = Stage::new(env)?;
    let buffer = stage.zeros(1 << 12)?;
    let stream = &stage.stream;
    stage.rounds(
        |round| Ok(stream.fill(&buffer.all(), &[round])?),
        || {
            for round in 0..64_u64 {
                let at = (round * 61) % 4000;
                stream.write(&buffer.slice(at..at + 16)?, &[round as u8; 16])?;
                stream.fill(&buffer.slice(64 * round..64 * round + 32)?, &[0xC0 | (round as u8 & 15), 7])?;
            }
            Ok(())
        },
        |round| {
            let mut expected = vec![round; 1 << 12];
            for step in 0..64_usize {
                expected[step * 61 % 4000..][..16].fill(step as u8);
                let pattern = [0xC0 | (step as u8 & 15), 7];
                expected[64 * step..][..32].copy_from_slice(&pattern.repeat(16));
            }
            same_bytes("work.copies", &format!("fills and writes in round {round}"), &buffer.to_vec()?, &expected)
        },
    )
}

/// Pieces that a graph may do at one go, each with a near miss: another pattern, a gap, an overlap.
fn neighbours(env: &Env) -> Outcome {
    let stage = Stage::new(env)?;
    let content = bytes(env.seed, 4096);
    let (from, to) = (stage.face.runtime.buffer_from(&content)?, stage.zeros(4096)?);
    let stream = &stage.stream;
    stage.rounds(
        |round| Ok(stream.fill(&to.all(), &[0x50 | round])?),
        || {
            for at in 0..8 {
                stream.fill(&to.slice(at * 100..at * 100 + 100)?, &[if at == 5 { 9 } else { 8 }])?;
            }
            for at in 0..8 {
                let gap = if at == 4 { 1 } else { 0 };
                let (to_at, from_at) = (1000 + at * 64, 500 + at * 64 + gap);
                stream.copy(&to.slice(to_at..to_at + 64)?, &from.slice(from_at..from_at + 64)?)?;
            }
            for at in 0..4 {
                stream.copy(&to.slice(2000 + at * 64..2064 + at * 64)?, &to.slice(1936 + at * 64..2000 + at * 64)?)?;
            }
            for at in 0..6 {
                stream.write(&to.slice(3000 + at * 20..3020 + at * 20)?, &[at as u8; 20])?;
            }
            Ok(())
        },
        |round| {
            let mut expected = vec![0x50 | round; 4096];
            for at in 0..8 {
                expected[at * 100..][..100].fill(if at == 5 { 9 } else { 8 });
                let from_at = 500 + at * 64 + usize::from(at == 4);
                expected[1000 + at * 64..][..64].copy_from_slice(&content[from_at..][..64]);
            }
            for at in 0..4 {
                expected.copy_within(1936 + at * 64..2000 + at * 64, 2000 + at * 64);
            }
            for at in 0..6 {
                expected[3000 + at * 20..][..20].fill(at as u8);
            }
            same_bytes("work.copies", &format!("neighbours in round {round}"), &to.to_vec()?, &expected)
        },
    )
}

/// Buffers that come and go within the work.
fn scratch(env: &Env) -> Outcome {
    let stage = Stage::new(env)?;
    let out = stage.zeros(4 << 10)?;
    let (runtime, stream) = (&stage.face.runtime, &stage.stream);
    stage.rounds(
        |_| Ok(stream.fill(&out.all(), &[0])?),
        || {
            for part in 0..4_u64 {
                let scratch = runtime.alloc(1 << 20)?;
                stream.fill(&scratch.all(), &[part as u8 + 1])?;
                stream.copy(&out.slice(part << 10..(part + 1) << 10)?, &scratch.slice(..1 << 10)?)?;
            }
            Ok(())
        },
        |round| {
            let expected: Vec<u8> = (0..4 << 10).map(|at| (at >> 10) as u8 + 1).collect();
            same_bytes("work.dropped-buffer", &format!("through scratch, round {round}"), &out.to_vec()?, &expected)
        },
    )
}

fn built_ins_in_order(env: &Env) -> Outcome {
    let stage = Stage::new(env)?;
    let stream = &stage.stream;
    let content = bytes(env.seed, 10_000);
    let (data, counts, copied) = (stage.zeros(10_000)?, stage.zeros(2048)?, stage.zeros(2048)?);
    let mut expected = [0; 256];
    stage.rounds(
        |round| Ok(stream.upload(&data.all(), &rotated(&content, round))?),
        || {
            stream.histogram(&counts.all(), &data.all())?;
            stream.copy(&copied.all(), &counts.all())?;
            stream.fill(&data.all(), &[0])
        },
        |round| {
            histogram::reference::count(&rotated(&content, round), &mut expected);
            let counted: Vec<u8> = expected.into_iter().flat_map(u64::to_le_bytes).collect();
            same_bytes("work.built-ins", &format!("counts after round {round}"), &copied.to_vec()?, &counted)?;
            same_bytes("work.built-ins", "a fill behind them", &data.to_vec()?, &[0; 10_000])
        },
    )
}

fn kernels_in_order(env: &Env) -> Outcome {
    let stage = Stage::new(env)?;
    let stream = &stage.stream;
    let (buffer, copied) = (stage.zeros(256)?, stage.zeros(256)?);
    // Each group adds a value to its byte.
    let kernel = stage.face.runtime.host_kernel((), |group: &WorkGroup, args: &[KernelArg]| {
        let at = group.index[0] as usize;
        if let [place, value, ..] = args
            && (at as u64) < place.len
        {
            // SAFETY: H15: inside the first argument, and each group has a byte of its own; the second is one byte.
            unsafe {
                let byte = place.ptr.wrapping_add(at);
                byte.write(byte.read().wrapping_add(value.ptr.read()));
            }
        }
    })?;
    stage.rounds(
        |round| Ok(stream.fill(&buffer.all(), &[round])?),
        || {
            for value in [1_u8, 10, 100] {
                let args = [LaunchArg::Buffer(buffer.all()), LaunchArg::Bytes(&[value])];
                // SAFETY: the kernel takes a buffer and a byte, and streams order its launches.
                unsafe { stream.launch(&kernel, Launch::linear(256, 1), &args)? };
            }
            stream.copy(&copied.all(), &buffer.all())?;
            stream.fill(&buffer.all(), &[0xFF])
        },
        |round| {
            same_bytes(
                "work.kernels",
                &format!("three launches, round {round}"),
                &copied.to_vec()?,
                &[round + 111; 256],
            )?;
            same_bytes("work.kernels", "a fill behind them", &buffer.to_vec()?, &[0xFF; 256])
        },
    )
}

fn functions_in_order(env: &Env) -> Outcome {
    let stage = Stage::new(env)?;
    let (stream, other) = (&stage.stream, stage.stream()?);
    let log = Arc::new(Mutex::new(Vec::new()));
    let noting = |name: u32| {
        let log = Arc::clone(&log);
        move || locked(&log).push(name)
    };
    stage.rounds(
        |_| Ok(()),
        || {
            stream.host_fn_mut(noting(0))?;
            other.wait_stream(stream)?;
            other.host_fn_mut(noting(1))?;
            stream.wait_stream(&other)?;
            (2..6).try_for_each(|name| stream.host_fn_mut(noting(name)))
        },
        |round| {
            stage.face.finish(stream)?;
            let seen = std::mem::take(&mut *locked(&log));
            same("function.order", &format!("the functions of round {round}"), seen, (0..6).collect())
        },
    )
}

fn behind_an_event(env: &Env) -> Outcome {
    let stage = Stage::new(env)?;
    let (a, b) = (&stage.stream, stage.stream()?);
    let (shared, out) = (stage.zeros(1 << 20)?, stage.zeros(1 << 20)?);
    stage.rounds(
        |_| Ok(a.fill(&out.all(), &[0])?),
        || {
            a.fill(&shared.all(), &[3])?;
            b.wait_event(&a.record_event(None)?)?;
            b.copy(&out.all(), &shared.all())?;
            a.wait_event(&b.record_event(None)?)?;
            a.fill(&shared.all(), &[4])
        },
        |round| {
            same_bytes("event.wait", &format!("what came through, round {round}"), &out.to_vec()?, &vec![3; 1 << 20])?;
            same_bytes("event.wait", "what was filled behind it", &shared.to_vec()?, &vec![4; 1 << 20])
        },
    )
}

fn event_recorded_again(env: &Env) -> Outcome {
    let stage = Stage::new(env)?;
    let (a, b, c) = (&stage.stream, stage.stream()?, stage.stream()?);
    let (shared, out) = (stage.zeros(1 << 18)?, stage.zeros(2 << 18)?);
    let runtime = &stage.face.runtime;
    stage.rounds(
        |round| Ok(a.fill(&shared.all(), &[0x80 | round])?),
        || {
            let event = runtime.event(EventOptions::default())?;
            a.fill(&shared.all(), &[1])?;
            event.record(Some(a))?;
            b.wait_event(&event)?;
            // The wait for the old place stays; who waits from now on waits for the new one.
            b.copy(&out.slice(..1 << 18)?, &shared.all())?;
            event.record(Some(&b))?;
            a.wait_event(&event)?;
            a.fill(&shared.all(), &[2])?;
            event.record(Some(a))?;
            c.wait_event(&event)?;
            c.copy(&out.slice(1 << 18..)?, &shared.all())?;
            a.wait_stream(&b)?;
            a.wait_stream(&c)
        },
        |round| {
            let expected = [vec![1; 1 << 18], vec![2; 1 << 18]].concat();
            same_bytes("event.record-again", &format!("both places, round {round}"), &out.to_vec()?, &expected)
        },
    )
}

fn fork_and_join(env: &Env) -> Outcome {
    const PARTS: u64 = 6;
    let stage = Stage::new(env)?;
    let origin = &stage.stream;
    let streams = (0..PARTS).map(|_| stage.stream()).collect::<Outcome<Vec<_>>>()?;
    let (source, out, sum) = (stage.zeros(1 << 12)?, stage.zeros(PARTS << 12)?, stage.zeros(PARTS << 12)?);
    stage.rounds(
        |round| Ok(origin.fill(&source.all(), &[round])?),
        || {
            origin.fill(&source.slice(..1 << 11)?, &[0xAB])?;
            for (at, stream) in (0..).zip(&streams) {
                stream.wait_stream(origin)?;
                stream.copy(&out.slice(at << 12..(at + 1) << 12)?, &source.all())?;
                stream.write(&out.slice(at << 12..(at << 12) + 1)?, &[at as u8])?;
            }
            for stream in &streams {
                origin.wait_stream(stream)?;
            }
            origin.copy(&sum.all(), &out.all())?;
            origin.fill(&out.all(), &[0])
        },
        |round| {
            let mut expected = Vec::new();
            for at in 0..PARTS as u8 {
                expected.extend([vec![0xAB; 1 << 11], vec![round; 1 << 11]].concat());
                expected[usize::from(at) << 12] = at;
            }
            same_bytes("stream.wait", &format!("what six branches made of round {round}"), &sum.to_vec()?, &expected)?;
            same_bytes("stream.wait", "a fill behind them", &out.to_vec()?, &[0; (PARTS << 12) as usize])
        },
    )
}

fn to_and_fro(env: &Env) -> Outcome {
    let stage = Stage::new(env)?;
    let (a, b) = (&stage.stream, stage.stream()?);
    let buffer = stage.zeros(256)?;
    stage.rounds(
        |round| Ok(a.fill(&buffer.all(), &[round])?),
        || {
            for step in 0..100_u64 {
                let (from, to) = if step % 2 == 0 { (0, 128) } else { (128, 0) };
                let stream = if step % 2 == 0 { a } else { &b };
                stream.write(&buffer.slice(from..from + 1)?, &[step as u8])?;
                stream.copy(&buffer.slice(to..to + 128)?, &buffer.slice(from..from + 128)?)?;
                let next = if step % 2 == 0 { &b } else { a };
                next.wait_event(&stream.record_event(None)?)?;
            }
            Ok(())
        },
        |round| {
            let mut expected = vec![round; 256];
            (expected[0], expected[128]) = (99, 99);
            same_bytes("event.wait", &format!("a hundred turns, round {round}"), &buffer.to_vec()?, &expected)
        },
    )
}

fn across_devices(env: &Env) -> Outcome {
    let stage = Stage::new(env)?;
    let runtime = &stage.face.runtime;
    let (zero, one) = (&stage.stream, runtime.stream(1)?);
    let (here, there, back) = (runtime.alloc_on(0, 4096)?, runtime.alloc_on(1, 4096)?, runtime.alloc_on(0, 4096)?);
    runtime.synchronize(1)?;
    stage.rounds(
        |round| Ok(zero.fill(&here.all(), &[round])?),
        || {
            zero.write(&here.slice(..4)?, &[0xCC; 4])?;
            one.wait_stream(zero)?;
            one.copy(&there.all(), &here.all())?;
            one.write(&there.slice(4..8)?, &[0xDD; 4])?;
            zero.wait_stream(&one)?;
            zero.copy(&back.all(), &there.all())
        },
        |round| {
            let mut expected = vec![round; 4096];
            expected[..4].fill(0xCC);
            expected[4..8].fill(0xDD);
            same_bytes("work.across-devices", &format!("there and back, round {round}"), &back.to_vec()?, &expected)
        },
    )
}

/// Each round draws fresh numbers: those that a twin of the generator draws at once.
fn random_in_order(env: &Env) -> Outcome {
    const COUNT: u64 = 1003;
    let stage = Stage::new(env)?;
    let stream = &stage.stream;
    let (generator, twin) = (Generator::seeded(env.seed)?, Generator::seeded(env.seed)?);
    let (seen, expected) = (stage.zeros(8 * COUNT)?, stage.zeros(8 * COUNT)?);
    let draw = |buffer: &Buffer, generator: &Generator| -> Result<()> {
        let options = Options { generator: Some(generator), ..Options::default() };
        let (low, high) = (buffer.slice(..4 * COUNT)?, buffer.slice(4 * COUNT..)?);
        stream.random(&low, DType::F32, Distribution::UNIFORM, &options)?;
        stream.random(&high, DType::F32, Distribution::NORMAL, &options)
    };
    stage.rounds(
        |_| Ok(stream.fill(&seen.all(), &[0])?),
        || draw(&seen, &generator),
        |round| {
            draw(&expected, &twin)?;
            let what = format!("the numbers of round {round}");
            same_bytes("random.stream-order", &what, &seen.to_vec()?, &expected.to_vec()?)?;
            same("random.offset", "the offsets of both generators", generator.offset(), twin.offset())
        },
    )
}
