//! Captures against a shadow model: what comes after what, whatever streams and events did.

use anyaccel_engine::graph::{Dot, Node, Plan, Point, Program, Recorder, Refusal, Stretch, Work};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A write of `value` to some bytes: enough to see whether merging is visible.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Write {
    at: Stretch,
    value: u8,
}

impl Work for Write {
    fn name(&self) -> &str {
        "write"
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.at.len)
    }

    fn absorb(&mut self, next: &Self) -> bool {
        if self.value != next.value {
            return false;
        }
        match self.at.with(&next.at) {
            Some(both) => {
                self.at = both;
                true
            }
            None => false,
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Record { lane: u64, at: u64, len: u64, value: u8 },
    Point { lane: u64 },
    Wait { lane: u64, point: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..4u64, 0..4u64, 1..3u64, 0..2u8).prop_map(|(lane, at, len, value)| Step::Record { lane, at, len, value }),
        2 => (0..4u64).prop_map(|lane| Step::Point { lane }),
        3 => (0..4u64, any::<prop::sample::Index>()).prop_map(|(lane, i)| Step::Wait { lane, point: i.index(1000) }),
    ]
}

/// Each lane as the set of all nodes that its next one comes after.
#[derive(Default)]
struct Model {
    lanes: [Option<BTreeSet<u32>>; 4],
    points: Vec<(Point, BTreeSet<u32>)>,
    nodes: Vec<BTreeSet<u32>>,
}

fn record(steps: &[Step]) -> (Recorder<Write>, Model) {
    let mut recorder: Recorder<Write> = Recorder::new(7, 0);
    let mut model = Model::default();
    model.lanes[0] = Some(BTreeSet::new());
    for step in steps {
        match *step {
            Step::Record { lane, at, len, value } => {
                let work = Write { at: Stretch { memory: 0, offset: at, len }, value };
                match &mut model.lanes[lane as usize] {
                    None => assert_eq!(recorder.record(lane, work), Err(Refusal::NotJoined(lane))),
                    Some(before) => {
                        let node = recorder.record(lane, work).unwrap();
                        assert_eq!(node as usize, model.nodes.len());
                        model.nodes.push(before.clone());
                        before.insert(node);
                    }
                }
            }
            Step::Point { lane } => match &model.lanes[lane as usize] {
                None => assert_eq!(recorder.point(lane), Err(Refusal::NotJoined(lane))),
                Some(before) => model.points.push((recorder.point(lane).unwrap(), before.clone())),
            },
            Step::Wait { lane, point } => {
                let Some((point, before)) = model.points.get(point % model.points.len().max(1)) else { continue };
                let other = Point { capture: 8, ..*point };
                assert_eq!(recorder.wait(lane, other), Err(Refusal::OtherCapture));
                let joins = model.lanes[lane as usize].is_none();
                assert_eq!(recorder.wait(lane, *point), Ok(joins));
                model.lanes[lane as usize].get_or_insert_default().extend(before);
            }
        }
    }
    (recorder, model)
}

fn ancestors<W>(program: &Program<W>) -> Vec<BTreeSet<u32>> {
    let mut all: Vec<BTreeSet<u32>> = Vec::new();
    for node in 0..program.nodes().len() as u32 {
        let mut own = BTreeSet::new();
        for &before in program.after(node) {
            assert!(before < node, "the order is topological");
            own.insert(before);
            own.extend(&all[before as usize]);
        }
        all.push(own);
    }
    all
}

fn bytes(node: &Node<Write>) -> std::ops::Range<usize> {
    let Stretch { offset, len, .. } = node.work.at;
    offset as usize..(offset + len) as usize
}

/// What the nodes leave in memory, each run in turn; bytes of `raced` aside.
fn run(program: &Program<Write>, raced: &BTreeSet<usize>) -> [u8; 8] {
    let mut memory = [9; 8];
    for node in program.nodes() {
        memory[bytes(node)].fill(node.work.value);
    }
    raced.iter().for_each(|&at| memory[at] = 0);
    memory
}

/// The bytes that two nodes write with nothing between them that orders them: their value is anybody's guess.
fn raced(program: &Program<Write>) -> BTreeSet<usize> {
    let known = ancestors(program);
    let nodes = program.nodes();
    let mut raced = BTreeSet::new();
    for late in 0..nodes.len() {
        for early in (0..late).filter(|&early| !known[late].contains(&(early as u32))) {
            let both: BTreeSet<usize> = bytes(&nodes[early]).collect();
            raced.extend(bytes(&nodes[late]).filter(|at| both.contains(at)));
        }
    }
    raced
}

/// Runs a plan on lanes that go on in any order, `choose` deciding, and returns the order of the nodes.
fn replay(plan: &Plan, mut choose: impl FnMut(usize) -> usize) -> Vec<u32> {
    enum Do {
        Start,
        Wait(u32),
        Run(u32),
        Mark(u32),
    }
    let mut lanes: Vec<Vec<Do>> = (0..plan.lanes).map(|_| Vec::new()).collect();
    for step in &plan.steps {
        let lane = &mut lanes[step.lane as usize];
        if step.start {
            lane.push(Do::Start);
        }
        lane.extend(step.waits.iter().map(|&(_, mark)| Do::Wait(mark)));
        lane.push(Do::Run(step.node));
        lane.extend(step.mark.map(Do::Mark));
    }
    lanes[0].extend(plan.ends.iter().map(|&(_, mark)| Do::Wait(mark)));
    let mut at = vec![0; lanes.len()];
    let mut marks = vec![false; plan.marks as usize];
    let mut order = Vec::new();
    loop {
        let ready: Vec<usize> = (0..lanes.len())
            .filter(|&lane| match lanes[lane].get(at[lane]) {
                None => false,
                Some(Do::Wait(mark)) => marks[*mark as usize],
                Some(_) => true,
            })
            .collect();
        if ready.is_empty() {
            assert!((0..lanes.len()).all(|lane| at[lane] == lanes[lane].len()), "a lane waits for ever");
            return order;
        }
        let lane = ready[choose(ready.len())];
        match lanes[lane][at[lane]] {
            Do::Start => assert!(at[lane] == 0, "the start comes first"),
            Do::Wait(_) => {}
            Do::Run(node) => order.push(node),
            Do::Mark(mark) => marks[mark as usize] = true,
        }
        at[lane] += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_capture_orders_its_nodes_as_streams_and_events_did(
        steps in prop::collection::vec(step(), 0..60),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
    ) {
        let (recorder, model) = record(&steps);
        let joined = model.lanes[0].clone().unwrap_or_default();
        let finished = recorder.finish(|refusal| refusal);
        if joined.len() < model.nodes.len() {
            prop_assert!(matches!(finished, Err(Refusal::Unjoined(_))), "{:?}", finished);
            return Ok(());
        }
        let program = finished.unwrap();
        let known = ancestors(&program);
        for (node, before) in model.nodes.iter().enumerate() {
            prop_assert_eq!(&known[node], before, "node {}", node);
        }
        for node in 0..program.nodes().len() as u32 {
            let direct = program.after(node);
            let needless = direct.iter().find(|&before| direct.iter().any(|on| known[*on as usize].contains(before)));
            prop_assert_eq!(needless, None, "node {} names what follows from another", node);
        }
        let mut reached: BTreeSet<u32> = program.ends().iter().copied().collect();
        program.ends().iter().for_each(|&end| reached.extend(&known[end as usize]));
        prop_assert_eq!(reached.len(), program.nodes().len(), "the end comes after everything");

        // A plan keeps that order, whatever lane goes first.
        let plan = Plan::of(&program);
        let mut at = 0;
        let order = replay(&plan, |n| {
            at += 1;
            choices[at % choices.len()].index(n)
        });
        prop_assert_eq!(order.len(), program.nodes().len());
        let mut done = BTreeSet::new();
        for node in order {
            prop_assert!(known[node as usize].is_subset(&done), "{} too early", node);
            done.insert(node);
        }

        // Merging can't be seen: not in memory, not in what is ordered, not in the document's shape.
        let raced = raced(&program);
        let before = run(&program, &raced);
        let bytes: u64 = program.nodes().iter().map(|node| node.work.at.len).sum();
        let count = program.nodes().len();
        let merged = program.merged();
        prop_assert!(merged.nodes().len() <= count);
        prop_assert_eq!(run(&merged, &raced), before);
        prop_assert_eq!(merged.nodes().iter().map(|node| node.work.at.len).sum::<u64>(), bytes);
        ancestors(&merged);
        let text = Dot::new(&merged, "g", &[]).to_string();
        prop_assert_eq!(text.matches("label=").count(), merged.nodes().len());
    }
}

#[test]
fn consecutive_writes_become_one_unless_somebody_could_tell() {
    let write = |offset, value| Write { at: Stretch { memory: 0, offset, len: 1 }, value };
    let mut recorder: Recorder<Write> = Recorder::new(1, 0);
    for at in 0..4 {
        recorder.record(0, write(at, 1)).unwrap();
    }
    let fork = recorder.point(0).unwrap();
    recorder.record(0, write(4, 1)).unwrap();
    recorder.wait(5, fork).unwrap();
    recorder.record(5, write(6, 1)).unwrap();
    let join = recorder.point(5).unwrap();
    recorder.wait(0, join).unwrap();
    recorder.record(0, write(5, 1)).unwrap();
    let merged = recorder.finish(|refusal| refusal).unwrap().merged();
    let seen: Vec<(u64, u64)> = merged.nodes().iter().map(|n| (n.work.at.offset, n.work.at.len)).collect();
    assert_eq!(seen, [(0, 4), (4, 1), (6, 1), (5, 1)], "a node that two come after, or that comes after two, stays");
    assert_eq!(merged.after(3), [1, 2]);
}

#[test]
fn the_first_error_is_the_one_that_is_told() {
    let mut recorder: Recorder<Write, &str> = Recorder::new(1, 0);
    recorder.invalidate("first");
    recorder.invalidate("second");
    assert_eq!(recorder.fault(), Some(&"first"));
    assert_eq!(recorder.finish(|_| "unjoined").err(), Some("first"));
}

#[test]
fn a_document_names_operation_size_and_stream() {
    let mut recorder: Recorder<Write> = Recorder::new(1, 0);
    recorder.record(0, Write { at: Stretch { memory: 0, offset: 0, len: 4096 }, value: 0 }).unwrap();
    recorder.record(0, Write { at: Stretch { memory: 0, offset: 1, len: 1 }, value: 1 }).unwrap();
    let program = recorder.finish(|refusal| refusal).unwrap();
    let text = Dot::new(&program, "a \"name\"", &["stream 3".to_owned()]).to_string();
    assert!(text.starts_with("digraph \"a \\\"name\\\"\" {\n"), "{text}");
    assert!(text.contains("n0 [label=\"0: write\\n4 KiB\\nstream 3\""), "{text}");
    assert!(text.contains("n1 [label=\"1: write\\n1 byte\\nstream 3\""), "{text}");
    assert!(text.contains("\n  n0 -> n1;\n"), "{text}");
}
