//! Models of the protocol for loom, which tries the orders in which threads can meet.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p anyaccel-host --release loom`. Each model has two or three threads; orders with
//! more than a few forced switches are left out, which is what keeps them to seconds.

use crate::crew::Crew;
use crate::gate::GateState;
use crate::graph::Exec;
use crate::op::Op;
use crate::stream::Stream;
use crate::wait::wait_host;
use anyaccel_hal::{Until, WaitMode, Waited};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

/// Runs a model over all orders with at most so many forced switches.
fn model(switches: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(body);
}

/// A plain number, each access of which loom checks.
struct Tally(UnsafeCell<u64>);

// SAFETY: loom reports every access that is not ordered after the one before.
unsafe impl Send for Tally {}
// SAFETY: as above.
unsafe impl Sync for Tally {}

impl Tally {
    fn new() -> Arc<Self> {
        Arc::new(Self(UnsafeCell::new(0)))
    }

    /// A task of a graph that is done once more, after those `before` have been done as often.
    fn after(self: &Arc<Self>, before: &[&Arc<Tally>]) -> Arc<dyn Fn() + Send + Sync> {
        let (tally, before) = (Arc::clone(self), before.iter().copied().map(Arc::clone).collect::<Vec<_>>());
        Arc::new(move || {
            // SAFETY: loom checks it.
            let now = tally.0.with_mut(|at| unsafe {
                *at += 1;
                *at
            });
            before.iter().for_each(|before| assert_eq!(before.get(), now, "out of order"));
        })
    }

    fn get(&self) -> u64 {
        // SAFETY: loom checks it.
        self.0.with(|at| unsafe { *at })
    }

    /// An operation that may only come when the tally is `from`, and makes it one more.
    fn step(self: &Arc<Self>, from: u64) -> Op {
        let tally = Arc::clone(self);
        Op::Probe(Box::new(move || {
            // SAFETY: loom checks it.
            tally.0.with_mut(|at| unsafe {
                assert_eq!(*at, from, "out of order");
                *at += 1;
            });
        }))
    }
}

/// A crew whose workers are threads of the model.
fn crew(workers: usize) -> (Arc<Crew>, Vec<thread::JoinHandle<()>>) {
    crew_for(workers, workers)
}

/// The same for work that is cut up for more workers than there are.
fn crew_for(workers: usize, threads: usize) -> (Arc<Crew>, Vec<thread::JoinHandle<()>>) {
    let crew = Arc::new(Crew::new(workers, 1, Arc::default()));
    (0..threads).for_each(|_| crew.enlist());
    let threads = (0..threads).map(|_| {
        let crew = Arc::clone(&crew);
        thread::spawn(move || crew.work())
    });
    let threads = threads.collect();
    (crew, threads)
}

fn stream(crew: &Arc<Crew>) -> Arc<Stream> {
    Arc::new(Stream::new(Arc::clone(crew), 0))
}

fn close(crew: &Crew, threads: Vec<thread::JoinHandle<()>>) {
    crew.close(Vec::new());
    threads.into_iter().for_each(|thread| thread.join().expect("a worker ends"));
}

fn ended(waited: Waited) {
    assert_eq!(waited, Waited::Ended);
}

/// Behind a mark that has ended the next one has too, whether or not the runner has put the token back; work after it runs.
#[test]
fn loom_a_mark_behind_an_ended_one_has_ended() {
    model(4, || {
        let (crew, threads) = crew(1);
        let (stream, tally) = (stream(&crew), Tally::new());
        stream.push(tally.step(0));
        let mark = stream.mark();
        ended(wait_host(&stream, Until::Mark(mark), None, WaitMode::Block));
        let next = stream.mark();
        assert!(next > mark && stream.ended() >= next);
        assert!(stream.mark_unless_at_rest().is_none());
        stream.push(tally.step(1));
        let last = stream.mark();
        ended(wait_host(&stream, Until::Mark(last), None, WaitMode::Block));
        assert_eq!(tally.get(), 2);
        close(&crew, threads);
    });
}

/// A worker runs, or sleeps, or is about to, while work is submitted: the mark always ends and its waiter wakes.
#[test]
fn loom_a_sleeping_waiter_and_a_worker_never_miss_each_other() {
    model(5, || {
        let (crew, threads) = crew(1);
        let (stream, tally) = (stream(&crew), Tally::new());
        stream.push(tally.step(0));
        let mark = stream.mark();
        ended(wait_host(&stream, Until::Mark(mark), None, WaitMode::Block));
        assert_eq!(tally.get(), 1, "visible after the wait");
        close(&crew, threads);
    });
}

/// The waiter takes the token, or the worker does, whoever is first: each operation runs once and in order.
#[test]
fn loom_a_helping_waiter_and_a_worker_share_a_stream() {
    model(5, || {
        let (crew, threads) = crew(1);
        let (stream, tally) = (stream(&crew), Tally::new());
        stream.push(tally.step(0));
        let mark = stream.mark();
        stream.push(tally.step(1));
        let later = stream.mark();
        ended(wait_host(&stream, Until::Mark(mark), None, WaitMode::Auto));
        ended(wait_host(&stream, Until::Mark(later), None, WaitMode::Block));
        assert_eq!(tally.get(), 2);
        close(&crew, threads);
    });
}

/// Without any worker the waiter does it all.
#[test]
fn loom_two_waiters_help_the_same_stream() {
    model(5, || {
        let (crew, _none) = crew(0);
        crew.enlist();
        let (stream, tally) = (stream(&crew), Tally::new());
        stream.push(tally.step(0));
        stream.push(tally.step(1));
        let mark = stream.mark();
        let other = {
            let stream = Arc::clone(&stream);
            thread::spawn(move || ended(wait_host(&stream, Until::Mark(mark), None, WaitMode::Auto)))
        };
        ended(wait_host(&stream, Until::Mark(mark), None, WaitMode::Auto));
        assert_eq!(tally.get(), 2);
        other.join().expect("it ends");
        crew.close(Vec::new());
    });
}

/// Two threads enqueue and submit on an idle stream at once: one of them schedules it, and nothing is left behind.
#[test]
fn loom_idle_to_ready_is_not_lost() {
    model(3, || {
        let (crew, threads) = crew(1);
        let (stream, one, two) = (stream(&crew), Tally::new(), Tally::new());
        let other = {
            let (stream, step) = (Arc::clone(&stream), two.step(0));
            thread::spawn(move || {
                stream.push(step);
                stream.mark()
            })
        };
        stream.push(one.step(0));
        let mark = stream.mark();
        ended(wait_host(&stream, Until::Mark(mark), None, WaitMode::Block));
        assert_eq!(one.get(), 1);
        let mark = other.join().expect("it ends");
        ended(wait_host(&stream, Until::Mark(mark), None, WaitMode::Block));
        assert_eq!(two.get(), 1);
        close(&crew, threads);
    });
}

/// A stream registers for a mark of another while that mark ends: it goes on, once, and sees what was before the mark.
#[test]
fn loom_a_stream_waits_for_a_mark_that_is_ending() {
    model(3, || {
        let (crew, threads) = crew(2);
        let (a, b, tally) = (stream(&crew), stream(&crew), Tally::new());
        a.push(tally.step(0));
        let mark = a.mark();
        b.push(Op::Wait { of: Arc::clone(&a), mark });
        b.push(tally.step(1));
        let last = b.mark();
        ended(wait_host(&b, Until::Mark(last), None, WaitMode::Block));
        assert_eq!(tally.get(), 2);
        close(&crew, threads);
    });
}

/// The same where a waiter runs one of the streams.
#[test]
fn loom_a_helper_blocks_on_a_mark_that_a_worker_ends() {
    model(3, || {
        let (crew, threads) = crew(1);
        let (a, b, tally) = (stream(&crew), stream(&crew), Tally::new());
        a.push(tally.step(0));
        let mark = a.mark();
        b.push(Op::Wait { of: Arc::clone(&a), mark });
        b.push(tally.step(1));
        ended(wait_host(&b, Until::Now, None, WaitMode::Auto));
        assert_eq!(tally.get(), 2);
        close(&crew, threads);
    });
}

/// A gate opens while a stream arrives at it.
#[test]
fn loom_a_gate_opens_while_a_stream_arrives() {
    model(5, || {
        let (crew, threads) = crew(1);
        let (stream, tally) = (stream(&crew), Tally::new());
        let gate = Arc::new(GateState::new());
        stream.push_and_submit(Op::Gate(Arc::clone(&gate)));
        stream.push(tally.step(0));
        let mark = stream.mark();
        gate.open();
        ended(wait_host(&stream, Until::Mark(mark), None, WaitMode::Block));
        assert_eq!(tally.get(), 1);
        close(&crew, threads);
    });
}

/// The driver goes away while a worker is anywhere in its work: every operation runs or is dropped, none is kept.
fn closing(held: bool) {
    model(3, move || {
        let (crew, threads) = crew(1);
        let (a, b) = (stream(&crew), stream(&crew));
        let alive = Arc::new(());
        let keeps = |alive: &Arc<()>| {
            let alive = Arc::clone(alive);
            Op::Probe(Box::new(move || drop(alive)))
        };
        if held {
            // Then both are blocked when the end comes, unless it comes first.
            a.push(Op::Gate(Arc::new(GateState::new())));
        }
        a.push(keeps(&alive));
        let mark = a.mark();
        b.push(Op::Wait { of: Arc::clone(&a), mark });
        b.push(keeps(&alive));
        b.mark();
        crew.close(vec![Arc::clone(&a), Arc::clone(&b)]);
        threads.into_iter().for_each(|thread| thread.join().expect("a worker ends"));
        assert_eq!(Arc::strong_count(&alive), 1, "work is left behind");
        assert!(a.at_rest() && b.at_rest());
        assert_eq!((Arc::strong_count(&a), Arc::strong_count(&b)), (1, 1), "a stream is held by another");
    });
}

#[test]
fn loom_closing_leaves_no_work_behind() {
    closing(false);
}

#[test]
fn loom_closing_leaves_no_blocked_stream_behind() {
    closing(true);
}

/// Chunks of a large operation that two workers take.
#[test]
fn loom_a_split_is_done_before_its_owner_goes_on() {
    model(5, || {
        let (crew, threads) = crew(1);
        let (one, two) = (Tally::new(), Tally::new());
        let body = |at: usize, len: usize| {
            for part in at..at + len {
                // SAFETY: loom checks it.
                [&one, &two][part].0.with_mut(|at| unsafe { *at += 1 });
            }
        };
        crew.share_between(2, 1, &body);
        assert_eq!((one.get(), two.get()), (1, 1));
        close(&crew, threads);
    });
}

/// A graph is replayed, and then the stream goes on: `after` says what each of its tasks comes after. One thread owns the
/// replay, the worker or the waiter, and the other one helps.
fn replays(count: u64, switches: usize, after: &'static [&'static [u32]]) {
    model(switches, move || {
        let (crew, threads) = crew_for(2, 1);
        let stream = stream(&crew);
        let tallies: Vec<Arc<Tally>> = after.iter().map(|_| Tally::new()).collect();
        let task = |at: usize| {
            let before: Vec<&Arc<Tally>> = after[at].iter().map(|&before| &tallies[before as usize]).collect();
            tallies[at].after(&before)
        };
        let graph = Exec::of_probes((0..after.len()).map(task).collect(), after);
        (0..count).for_each(|_| stream.push(graph.replay()));
        let mark = stream.mark();
        ended(wait_host(&stream, Until::Mark(mark), None, WaitMode::Auto));
        tallies.iter().for_each(|tally| assert_eq!(tally.get(), count, "visible after the wait"));
        close(&crew, threads);
    });
}

/// Branches that nothing orders: the owner runs one, or both, and meets the end of whatever a helper runs.
#[test]
fn loom_branches_of_a_graph_end_before_their_stream_goes_on() {
    replays(1, 2, &[&[], &[]]);
    replays(2, 1, &[&[], &[]]);
}

/// A task that comes after two branches is run once, by who ends the last of them, and sees what both did; the counters
/// are right for the next replay.
#[test]
fn loom_a_join_of_a_graph_comes_after_all_its_branches() {
    replays(1, 2, &[&[], &[], &[0, 1]]);
    replays(2, 1, &[&[], &[], &[0, 1]]);
}

/// A fork: what its first task did is seen by both branches.
#[test]
fn loom_a_fork_of_a_graph_is_seen_by_its_branches() {
    replays(1, 2, &[&[], &[0], &[0]]);
}
