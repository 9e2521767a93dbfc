//! Stacks of another language: what its table keeps, asks and forgets, and under which locks.

use anyaccel::{
    FrameSource, HistoryOptions, HistoryStacks, MOST_FRAMES, Runtime, StackFrame, StackId, StackSource, StackTable,
};
use anyaccel_sim::SimConfig;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

thread_local! {
    /// What this thread is doing, innermost last.
    static CALLS: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

fn at<T>(line: u32, body: impl FnOnce() -> T) -> T {
    CALLS.with_borrow_mut(|calls| calls.push(line));
    let result = body();
    CALLS.with_borrow_mut(|calls| calls.pop());
    result
}

/// A language of lines, which counts who keeps them; clones are the same one.
#[derive(Clone, Default)]
struct Lines {
    kept: Arc<Mutex<HashMap<u32, i64>>>,
    asked: Arc<AtomicUsize>,
}

impl Lines {
    fn kept(&self) -> Vec<(u32, i64)> {
        let mut kept: Vec<_> = self.kept.lock().unwrap().iter().map(|(&line, &count)| (line, count)).collect();
        kept.retain(|&(_, count)| count != 0);
        kept.sort_unstable();
        kept
    }

    fn count(&self, line: u32, by: i64) {
        *self.kept.lock().unwrap().entry(line).or_default() += by;
    }
}

impl FrameSource for Lines {
    type Frame = u32;

    fn capture(&self, frames: &mut [u32]) -> usize {
        CALLS.with_borrow(|calls| {
            let shown = calls.iter().rev().take(frames.len());
            shown.zip(frames.iter_mut()).map(|(&line, frame)| *frame = line).count()
        })
    }

    fn keep(&self, frame: u32) {
        self.count(frame, 1);
    }

    fn forget(&self, frame: u32) {
        self.count(frame, -1);
    }

    fn resolve(&self, frames: &[u32]) -> Vec<Vec<StackFrame>> {
        self.asked.fetch_add(frames.len(), Ordering::Relaxed);
        let told = |&line: &u32| match line {
            9 => Vec::new(),
            _ => vec![StackFrame { name: "f".into(), file: "lines".into(), line }],
        };
        frames.iter().map(told).collect()
    }
}

fn lines(table: &StackTable<Lines>, stack: StackId) -> Vec<u32> {
    table.frames(stack).iter().map(|frame| frame.line).collect()
}

#[test]
fn each_stack_is_one_number_and_each_frame_is_kept_and_asked_once() {
    let source = Lines::default();
    let table = StackTable::new(source.clone());
    assert_eq!(table.stack(None), StackId::EMPTY, "no frames");
    let (first, second) = at(1, || (at(2, || table.stack(None)), at(3, || table.stack(None))));
    assert_ne!(first, second);
    for _ in 0..100 {
        assert_eq!(at(1, || at(2, || table.stack(None))), first);
    }
    let recursive = at(1, || at(1, || at(9, || at(1, || table.stack(None)))));
    assert_eq!(source.kept(), [(1, 1), (2, 1), (3, 1), (9, 1)]);
    assert_eq!(source.asked.load(Ordering::Relaxed), 0, "names are asked for late");
    assert_eq!(lines(&table, first), [2, 1]);
    assert_eq!(lines(&table, second), [3, 1]);
    assert_eq!(lines(&table, recursive), [1, 1, 1], "of 9 nothing is known");
    assert_eq!(source.asked.load(Ordering::Relaxed), 4);
    let named = at(2, || table.stack(Some("empty_cache")));
    assert_eq!(table.frames(named)[0].name.as_ref(), "empty_cache");
    assert_eq!(lines(&table, named), [0, 2]);
    assert_eq!(lines(&table, table.stack(Some("empty_cache"))), [0], "a call without a stack");
    assert_eq!(lines(&table, StackId(77)), [] as [u32; 0]);
    drop(table);
    assert_eq!(source.kept(), []);
}

#[test]
fn the_outermost_frames_of_deep_stacks_go() {
    fn down(table: &StackTable<Lines>, line: u32) -> StackId {
        at(line, || if line == 1000 { table.stack(None) } else { down(table, line + 1) })
    }
    let table = StackTable::new(Lines::default());
    let stack = down(&table, 1);
    let expected: Vec<u32> = (1001 - MOST_FRAMES as u32..=1000).rev().collect();
    assert_eq!(lines(&table, stack), expected);
}

/// However many threads see a frame for the first time at once, it is kept once, and every number names the stack it was given
/// for, while others look.
#[test]
fn threads_that_meet_agree() {
    let source = Lines::default();
    let table = StackTable::new(source.clone());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for line in 100..400 {
                    let stack = at(line / 10, || at(line, || table.stack(None)));
                    if line % 7 == 0 {
                        assert_eq!(lines(&table, stack), [line, line / 10]);
                    }
                }
            });
        }
    });
    let expected: Vec<(u32, i64)> = (10..40).chain(100..400).map(|line| (line, 1)).collect();
    assert_eq!(source.kept(), expected);
    drop(table);
    assert_eq!(source.kept(), []);
}

/// Asks the runtime when it is dropped, which waits for ever if a lock of the runtime is held then.
struct Last(Runtime, Arc<AtomicUsize>);

impl StackSource for Last {
    fn stack(&self, _call: Option<&'static str>) -> StackId {
        StackId(1)
    }

    fn frames(&self, _stack: StackId) -> Vec<StackFrame> {
        Vec::new()
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        self.0.memory_history().expect("of this process");
        drop(self.0.alloc(1000).expect("memory"));
        drop(self.0.pinned(1000).expect("memory"));
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_last_owner_of_a_source_has_no_lock() {
    let sim = SimConfig::new().build();
    let runtime = Runtime::builder().driver(Arc::new(sim.driver())).build().expect("a driver was given");
    let dropped = Arc::new(AtomicUsize::new(0));
    for turn in 0..4 {
        let stacks = HistoryStacks::From(Arc::new(Last(runtime.clone(), Arc::clone(&dropped))));
        runtime.record_memory_history(HistoryOptions { stacks, ..HistoryOptions::default() }).unwrap();
        let _kept = (runtime.alloc(5000).unwrap(), runtime.pinned(5000).unwrap());
        assert_eq!(dropped.load(Ordering::Relaxed), turn, "each one takes the place of the one before");
    }
    runtime.record_memory_history(HistoryOptions::off()).unwrap();
    assert_eq!(dropped.load(Ordering::Relaxed), 4);
}
