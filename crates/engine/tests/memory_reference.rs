//! The rules, written down once more in the plainest way, against the production cache on random histories under random
//! settings: lists that are searched from end to end, nine counters with four numbers each. What the recorded histories
//! do not combine (a split limit with garbage collection, a fraction with several streams) is compared here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyaccel_engine::alloc::Departures;
use anyaccel_engine::alloc::replay::{Conf, replay};
use anyaccel_engine::alloc::{Settings, Stat};
use proptest::prelude::*;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

#[derive(Clone, Debug)]
struct Block {
    offset: u64,
    size: u64,
    requested: u64,
    /// Free: on the list since this reading of the pool's clock.
    free: Option<u64>,
    uses: BTreeSet<u64>,
    events: u32,
}

#[derive(Clone, Debug)]
struct Segment {
    ordinal: u64,
    kind: usize,
    stream: u64,
    size: u64,
    blocks: Vec<Block>,
}

#[derive(Default)]
struct Three([Stat; 3]);

impl Three {
    fn add(&mut self, kind: usize, n: i64) {
        for i in [0, kind + 1] {
            change(&mut self.0[i], n);
        }
    }
    fn json(&self) -> Value {
        Value::Array(self.0.iter().map(one).collect())
    }
}

fn change(stat: &mut Stat, n: i64) {
    let amount = n.unsigned_abs();
    if n > 0 {
        stat.current += amount;
        stat.allocated += amount;
        stat.peak = stat.peak.max(stat.current);
    } else {
        stat.current -= amount;
        stat.freed += amount;
    }
}

fn one(s: &Stat) -> Value {
    json!([s.current, s.peak, s.allocated, s.freed])
}

/// Where a block is: segment and index in it.
type Place = (usize, usize);

struct Reference<'s> {
    settings: &'s Settings,
    total: u64,
    segments: Vec<Segment>,
    next: u64,
    clock: [u64; 2],
    limit: Option<u64>,
    /// By stream: (item, segment ordinal, offset).
    queues: BTreeMap<u64, VecDeque<(u64, u64, u64)>>,
    streams: BTreeMap<u64, (u64, u64)>,
    held: bool,
    calls: Vec<String>,
    stats: BTreeMap<&'static str, Three>,
    oversize: [Stat; 2],
    retries: u64,
    ooms: u64,
    syncs: u64,
    allocs: u64,
    frees: u64,
    rejections: u64,
}

const GROUPS: [&str; 9] = [
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
];

impl<'s> Reference<'s> {
    fn new(settings: &'s Settings, total: u64) -> Self {
        let mut out = Reference {
            settings,
            total,
            segments: Vec::new(),
            next: 0,
            clock: [0; 2],
            limit: None,
            queues: BTreeMap::new(),
            streams: BTreeMap::new(),
            held: false,
            calls: Vec::new(),
            stats: GROUPS.into_iter().map(|g| (g, Three::default())).collect(),
            oversize: Default::default(),
            retries: 0,
            ooms: 0,
            syncs: 0,
            allocs: 0,
            frees: 0,
            rejections: 0,
        };
        out.set_fraction(settings.per_process_memory_fraction);
        out
    }

    fn add(&mut self, group: &'static str, kind: usize, n: i64) {
        self.stats.get_mut(group).unwrap().add(kind, n);
    }

    fn reserved(&self) -> u64 {
        self.segments.iter().map(|s| s.size).sum()
    }

    fn split_limit(&self) -> u64 {
        self.settings.max_split_size.unwrap_or(u64::MAX)
    }

    fn set_fraction(&mut self, fraction: f64) {
        self.limit = (fraction < 1.0).then(|| (fraction * self.total as f64).floor() as u64);
    }

    fn round(&self, size: u64) -> u64 {
        if size < 512 {
            return 512;
        }
        let mut log = 0;
        while size >> (log + 1) > 0 {
            log += 1;
        }
        let v = self.settings.roundup_power2_divisions[log.clamp(20, 35) - 20];
        let unit = if v > 1 && size > 512 * v {
            if size == 1 << log {
                return size;
            }
            (1u64 << log) / v
        } else {
            512
        };
        size.div_ceil(unit) * unit
    }

    fn free_places(&self, kind: usize) -> Vec<Place> {
        let mut out = Vec::new();
        for (s, segment) in self.segments.iter().enumerate() {
            for (b, block) in segment.blocks.iter().enumerate() {
                if segment.kind == kind && block.free.is_some() {
                    out.push((s, b));
                }
            }
        }
        // (stream, size, address)
        out.sort_by_key(|&(s, b)| {
            let (segment, block) = (&self.segments[s], &self.segments[s].blocks[b]);
            (segment.stream, block.size, segment.ordinal, block.offset)
        });
        out
    }

    fn find(&self, ordinal: u64, offset: u64) -> Place {
        let s = self.segments.iter().position(|s| s.ordinal == ordinal).unwrap();
        let b = self.segments[s].blocks.iter().position(|b| b.offset == offset).unwrap();
        (s, b)
    }

    /// Segments that are one free block.
    fn whole(&self, kind: usize) -> Vec<u64> {
        let places = self.free_places(kind).into_iter().filter(|&(s, _)| self.segments[s].blocks.len() == 1);
        places.map(|(s, _)| self.segments[s].ordinal).collect()
    }

    fn give_to_device(&mut self, ordinal: u64) -> u64 {
        let at = self.segments.iter().position(|s| s.ordinal == ordinal).unwrap();
        let segment = self.segments.remove(at);
        self.calls.push(format!("F0.{ordinal}:{}", segment.size));
        self.add("segment", segment.kind, -1);
        self.add("reserved_bytes", segment.kind, -(segment.size as i64));
        self.frees += 1;
        if segment.size >= self.split_limit() {
            change(&mut self.oversize[1], -1);
        }
        segment.size
    }

    fn process_events(&mut self, wait: bool) {
        for stream in self.queues.keys().copied().collect::<Vec<_>>() {
            while let Some(&(item, ordinal, offset)) = self.queues[&stream].front() {
                if wait {
                    let done = &mut self.streams.get_mut(&stream).unwrap().1;
                    *done = (*done).max(item);
                }
                if self.streams[&stream].1 < item {
                    break;
                }
                self.queues.get_mut(&stream).unwrap().pop_front();
                let (s, b) = self.find(ordinal, offset);
                self.segments[s].blocks[b].events -= 1;
                if self.segments[s].blocks[b].events == 0 {
                    self.really_free((s, b));
                }
            }
        }
    }

    fn really_free(&mut self, (s, mut b): Place) {
        let kind = self.segments[s].kind;
        let clock = self.clock[kind];
        let blocks = &mut self.segments[s].blocks;
        let Block { size, requested, .. } = blocks[b];
        blocks[b].free = Some(clock);
        let (mut n, mut bytes) = (0, 0);
        for neighbour in [b.wrapping_sub(1), b + 1] {
            if blocks.get(neighbour).is_some_and(|x| x.free.is_some()) {
                n -= 1;
                bytes -= blocks[neighbour].size as i64;
            }
        }
        if blocks.get(b + 1).is_some_and(|x| x.free.is_some()) {
            blocks[b].size += blocks[b + 1].size;
            blocks.remove(b + 1);
        }
        if b > 0 && blocks[b - 1].free.is_some() {
            blocks[b - 1].size += blocks[b].size;
            blocks.remove(b);
            b -= 1;
            blocks[b].free = Some(clock);
        }
        if blocks.len() > 1 {
            n += 1;
            bytes += blocks[b].size as i64;
        }
        for (group, change) in [
            ("inactive_split", n),
            ("inactive_split_bytes", bytes),
            ("active", -1),
            ("active_bytes", -(size as i64)),
            ("requested_bytes", -(requested as i64)),
        ] {
            if change != 0 {
                self.add(group, kind, change);
            }
        }
    }

    fn collect_garbage(&mut self) {
        let limit = self.limit.unwrap();
        let threshold = (self.settings.garbage_collection_threshold * limit as f64) as u64;
        if self.reserved() <= threshold {
            return;
        }
        let goal = self.reserved() - threshold;
        let mut freed = 0;
        loop {
            let left = self.whole(1);
            let age = |r: &Self, o: u64| r.clock[1] - r.segments[r.find(o, 0).0].blocks[0].free.unwrap();
            if freed >= goal || left.is_empty() {
                return;
            }
            let mean = left.iter().map(|&o| age(self, o)).sum::<u64>() as f64 / left.len() as f64;
            let mut any = false;
            for o in left {
                if age(self, o) as f64 >= mean {
                    freed += self.give_to_device(o);
                    any = true;
                }
            }
            if !any {
                return;
            }
        }
    }

    /// `Err(true)`: rejected at once.
    fn ask_device(&mut self, kind: usize, stream: u64, size: u64) -> Result<Place, bool> {
        if self.limit.is_some_and(|limit| self.reserved() + size > limit) {
            return Err(false);
        }
        let share = (self.settings.per_process_memory_fraction * self.total as f64) as u64;
        if self.settings.throw_on_cudamalloc_oom && self.reserved() + size > share {
            self.rejections += 1;
            return Err(true);
        }
        if self.reserved() + size > self.total {
            self.calls.push(format!("X0:{size}"));
            return Err(false);
        }
        let ordinal = self.next;
        self.next += 1;
        self.calls.push(format!("M0.{ordinal}:{size}"));
        let block = Block { offset: 0, size, requested: 0, free: None, uses: BTreeSet::new(), events: 0 };
        self.segments.push(Segment { ordinal, kind, stream, size, blocks: vec![block] });
        self.add("segment", kind, 1);
        self.add("reserved_bytes", kind, size as i64);
        self.allocs += 1;
        if size >= self.split_limit() {
            change(&mut self.oversize[1], 1);
        }
        Ok((self.segments.len() - 1, 0))
    }

    fn free_all_unused(&mut self) {
        self.syncs += 1;
        self.process_events(true);
        for kind in [1, 0] {
            for ordinal in self.whole(kind) {
                self.give_to_device(ordinal);
            }
        }
    }

    fn free_oversize(&mut self, kind: usize, stream: u64, rounded: u64) -> bool {
        let limit = self.split_limit();
        let want = rounded.max(limit);
        let size = |r: &Self, o: u64| r.segments[r.find(o, 0).0].size;
        let mut mine = self.whole(kind);
        mine.retain(|&o| self.segments[self.find(o, 0).0].stream == stream && size(self, o) >= limit);
        if let Some(&o) = mine.iter().find(|&&o| size(self, o) >= want) {
            self.give_to_device(o);
            return true;
        }
        let mut freed = 0;
        while freed < want
            && let Some(o) = mine.pop()
        {
            freed += self.give_to_device(o);
        }
        freed >= want
    }

    /// The block's segment and offset; `None` when out of memory.
    fn alloc(&mut self, size: u64, stream: u64) -> Option<(u64, u64)> {
        self.process_events(false);
        let rounded = self.round(size);
        let kind = usize::from(rounded > MIB);
        let limit = self.split_limit();
        let collecting = self.settings.garbage_collection_threshold > 0.0 && self.limit.is_some();
        if collecting {
            self.clock[kind] += 1;
        }
        let slack = self.settings.max_non_split_rounding.unwrap_or(self.settings.large_segment_size);
        let fit = self
            .free_places(kind)
            .into_iter()
            .find(|&(s, b)| self.segments[s].stream == stream && self.segments[s].blocks[b].size >= rounded);
        let fit = fit.filter(|&(s, b)| {
            let size = self.segments[s].blocks[b].size;
            !(rounded < limit && size >= limit || rounded >= limit && size >= rounded + slack)
        });
        let place = match fit {
            Some(place) => place,
            None => {
                if collecting {
                    self.collect_garbage();
                }
                let segment = if kind == 0 {
                    2 * MIB
                } else if rounded < 10 * MIB {
                    self.settings.large_segment_size
                } else {
                    rounded.div_ceil(2 * MIB) * 2 * MIB
                };
                let mut got = self.ask_device(kind, stream, segment);
                if got == Err(false) && limit != u64::MAX && self.free_oversize(kind, stream, rounded) {
                    got = self.ask_device(kind, stream, segment);
                }
                if got == Err(false) {
                    self.free_all_unused();
                    self.retries += 1;
                    got = self.ask_device(kind, stream, segment);
                }
                match got {
                    Ok(place) => place,
                    Err(rejected) => {
                        self.ooms += u64::from(!rejected);
                        return None;
                    }
                }
            }
        };
        let (s, b) = place;
        let clock = self.clock[kind];
        let segment = &mut self.segments[s];
        let ordinal = segment.ordinal;
        let was_split = segment.blocks.len() > 1;
        let whole = segment.blocks[b].size;
        let rest = whole - rounded;
        let splits = if kind == 0 { rest >= 512 } else { rounded < limit && rest > MIB };
        let block = &mut segment.blocks[b];
        block.free = None;
        block.requested = size;
        let (offset, mut taken) = (block.offset, whole);
        let mut changes: Vec<(&'static str, i64)> = Vec::new();
        if splits {
            taken = rounded;
            block.size = rounded;
            let high = Block {
                offset: offset + rounded,
                size: rest,
                requested: 0,
                free: Some(clock),
                uses: BTreeSet::new(),
                events: 0,
            };
            segment.blocks.insert(b + 1, high);
            if was_split {
                changes.push(("inactive_split_bytes", -(rounded as i64)));
            } else {
                changes.push(("inactive_split", 1));
                changes.push(("inactive_split_bytes", rest as i64));
            }
        } else if was_split {
            changes.push(("inactive_split", -1));
            changes.push(("inactive_split_bytes", -(whole as i64)));
        }
        changes.extend([
            ("allocation", 1),
            ("allocated_bytes", taken as i64),
            ("active", 1),
            ("active_bytes", taken as i64),
            ("requested_bytes", size as i64),
        ]);
        for (group, n) in changes {
            self.add(group, kind, n);
        }
        if taken >= limit {
            change(&mut self.oversize[0], 1);
        }
        Some((ordinal, offset))
    }

    fn free(&mut self, (ordinal, offset): (u64, u64)) {
        let (s, b) = self.find(ordinal, offset);
        let kind = self.segments[s].kind;
        let size = self.segments[s].blocks[b].size;
        self.add("allocation", kind, -1);
        self.add("allocated_bytes", kind, -(size as i64));
        if size >= self.split_limit() {
            change(&mut self.oversize[0], -1);
        }
        let uses = std::mem::take(&mut self.segments[s].blocks[b].uses);
        if uses.is_empty() {
            self.really_free((s, b));
            return;
        }
        self.segments[s].blocks[b].events = uses.len() as u32;
        for stream in uses {
            let entry = self.streams.entry(stream).or_default();
            entry.0 += 1;
            if !self.held {
                entry.1 = entry.0;
            }
            let item = entry.0;
            self.queues.entry(stream).or_default().push_back((item, ordinal, offset));
        }
    }

    fn record(&mut self, (ordinal, offset): (u64, u64), stream: u64) {
        let (s, b) = self.find(ordinal, offset);
        if self.segments[s].stream != stream {
            self.segments[s].blocks[b].uses.insert(stream);
        }
    }

    fn stats(&self) -> Value {
        let mut out = serde_json::Map::new();
        for (group, three) in &self.stats {
            out.insert((*group).into(), three.json());
        }
        out.insert("oversize_allocations".into(), one(&self.oversize[0]));
        out.insert("oversize_segments".into(), one(&self.oversize[1]));
        for (key, n) in [
            ("num_alloc_retries", self.retries),
            ("num_ooms", self.ooms),
            ("num_sync_all_streams", self.syncs),
            ("num_device_alloc", self.allocs),
            ("num_device_free", self.frees),
            ("num_oom_rejections", self.rejections),
        ] {
            out.insert(key.into(), n.into());
        }
        out.insert("max_split_size".into(), (self.split_limit() as i64).into());
        Value::Object(out)
    }

    fn each(&mut self, f: impl Fn(&mut Stat)) {
        self.stats.values_mut().flat_map(|t| &mut t.0).chain(&mut self.oversize).for_each(f);
    }
}

/// One line of the history; blocks by number.
fn step(model: &mut Reference, places: &mut BTreeMap<u64, Option<(u64, u64)>>, op: &str) -> Value {
    let words: Vec<&str> = op.split(' ').collect();
    let n = |at: usize| words[at].parse::<u64>().unwrap();
    let mut out = json!({ "op": op, "r": "ok" });
    match words[0] {
        "alloc" => {
            let place = model.alloc(n(2), n(3));
            places.insert(n(1), place);
            match place {
                Some((seg, off)) => {
                    out["seg"] = seg.into();
                    out["off"] = off.into();
                }
                None => out["r"] = "oom".into(),
            }
        }
        "free" => match places.remove(&n(1)).unwrap() {
            Some(place) => model.free(place),
            None => out["r"] = "skip".into(),
        },
        "record" => match places[&n(1)] {
            Some(place) => model.record(place, n(2)),
            None => out["r"] = "skip".into(),
        },
        "hold" => {
            model.held = n(1) == 1;
            if !model.held {
                model.streams.values_mut().for_each(|s| s.1 = s.0);
            }
        }
        "empty_cache" => model.free_all_unused(),
        "fraction" => model.set_fraction(words[1].parse().unwrap()),
        "reset_peak" => model.each(|s| s.peak = s.current),
        "reset_accumulated" => {
            model.each(|s| (s.allocated, s.freed) = (0, 0));
            (model.retries, model.ooms, model.syncs) = (0, 0, 0);
            (model.allocs, model.frees, model.rejections) = (0, 0, 0);
        }
        other => unreachable!("{other}"),
    }
    let calls = std::mem::take(&mut model.calls);
    if !calls.is_empty() {
        out["dev"] = calls.into();
    }
    out["stats"] = model.stats();
    out
}

/// Operations by dice; names of live blocks are chosen when the history is written out.
fn history(dice: &[(u8, u64, u64)]) -> Vec<String> {
    let mut live: Vec<u64> = Vec::new();
    let mut next = 0;
    let mut out = Vec::new();
    for &(kind, a, b) in dice {
        let pick = |live: &Vec<u64>| live[(a % live.len() as u64) as usize];
        out.push(match kind {
            0..=9 => {
                let octave = 1u64 << (a % 27);
                live.push(next);
                next += 1;
                format!("alloc {} {} {}", next - 1, octave + b % octave, b % 3)
            }
            10..=16 if !live.is_empty() => {
                let at = (a % live.len() as u64) as usize;
                format!("free {}", live.swap_remove(at))
            }
            17..=19 if !live.is_empty() => format!("record {} {}", pick(&live), b % 3),
            20 => format!("hold {}", a % 2),
            21 => "empty_cache".into(),
            22 => format!("fraction {}", [1.0, 0.9, 0.5, 0.25][(a % 4) as usize]),
            23 => "reset_peak".into(),
            24 => "reset_accumulated".into(),
            _ => continue,
        });
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_cache_follows_the_rules(
        settings in prop_oneof![
            Just(""),
            Just("max_split_size_mb:20"),
            Just("max_split_size_mb:32,max_non_split_rounding_mb:21"),
            Just("max_split_size_mb:20,garbage_collection_threshold:0.4,per_process_memory_fraction:0.5"),
            Just("garbage_collection_threshold:0.6,per_process_memory_fraction:0.8"),
            Just("large_segment_size_mb:24,roundup_power2_divisions:[1:8,4:2,>:4]"),
            Just("throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.6"),
            Just("throw_on_cudamalloc_oom:True,max_split_size_mb:32,garbage_collection_threshold:0.5"),
        ],
        total in prop_oneof![Just(96u64), Just(200), Just(1000)],
        dice in proptest::collection::vec((0u8..25, any::<u64>(), any::<u64>()), 1..250),
    ) {
        let settings = Settings::parse(settings).unwrap();
        let ops = history(&dice);
        let conf = Conf { total: total * MIB, devices: 1, settings: settings.clone(), departures: Departures::NONE };
        let mut lines = Vec::new();
        let trace = format!("stats_every 1\n{}\n", ops.join("\n"));
        replay(&trace, &conf, &mut |line| lines.push(line.to_owned())).unwrap();
        prop_assert_eq!(lines.len(), ops.len());
        let mut model = Reference::new(&settings, total * MIB);
        let mut places = BTreeMap::new();
        for (i, (op, line)) in ops.iter().zip(&lines).enumerate() {
            let mut want = step(&mut model, &mut places, op);
            want["i"] = i.into();
            let got: Value = serde_json::from_str(line).unwrap();
            prop_assert_eq!(&got, &want, "after {}", ops[..=i].join("; "));
        }
    }
}
