//! Random programs over several streams, against a shadow that runs them one operation after the other.
//!
//! Each stream owns a region. An operation works on its own stream's region, or reads another one's behind a wait; the
//! owner then waits for the reader before it goes on. So whatever order the backend chooses, the end is the shadow's.

use crate::case::{Case, Outcome, same, same_bytes};
use crate::env::Env;
use crate::lab::{Hold, Host, Lab, Region, Stream, bytes};
use crate::random::Random;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    Case::hal("programs.two-streams", &[6, 8], |env| programs(env, 2, 10, 120)),
    Case::hal("programs.five-streams", &[6, 8], |env| programs(env, 5, 8, 200)),
    Case::hal("programs.sixteen-streams", &[6, 8], |env| programs(env, 16, 3, 400)),
];

const LEN: usize = 2048;

struct Lane {
    stream: Stream,
    region: Region,
    shadow: Vec<u8>,
    log: Arc<Mutex<Vec<u32>>>,
    calls: u32,
}

struct Program<'a> {
    lab: &'a Lab,
    random: Random,
    lanes: Vec<Lane>,
    /// What downloads must hold in the end.
    downloads: Vec<(Host, Vec<u8>)>,
    /// Streams held up, the oldest first; never all of them.
    holds: VecDeque<(usize, Hold)>,
}

fn programs(env: &Env, streams: usize, count: u64, steps: usize) -> Outcome {
    for round in 0..count {
        let lab = env.lab()?;
        let mut program = Program {
            lab: &lab,
            random: Random::new(env.seed.wrapping_mul(1000).wrapping_add(round)),
            lanes: Vec::new(),
            downloads: Vec::new(),
            holds: VecDeque::new(),
        };
        for salt in 0..streams {
            let stream = lab.stream()?;
            let shadow = bytes(salt as u64, LEN);
            let region = lab.memory_with(stream, &shadow)?;
            program.lanes.push(Lane { stream, region, shadow, log: Arc::default(), calls: 0 });
        }
        for _ in 0..steps {
            program.step()?;
        }
        program.end(round)?;
    }
    Ok(())
}

impl Program<'_> {
    fn step(&mut self) -> Outcome {
        let at = self.random.below(self.lanes.len() as u64) as usize;
        match self.random.below(16) {
            0..=2 => self.write(at),
            3..=4 => self.fill(at),
            5..=6 => self.copy_within(at),
            7 => self.upload(at),
            8 => self.download(at),
            9..=12 => self.fetch(at),
            13 => self.call(at),
            14 => self.hold(at),
            _ => self.release(),
        }
    }

    fn range(&mut self, most: u64) -> (u64, u64) {
        let len = self.random.within(1, most + 1);
        (self.random.below(LEN as u64 - len + 1), len)
    }

    fn write(&mut self, at: usize) -> Outcome {
        let (offset, len) = self.range(64);
        let content = bytes(self.random.next(), len as usize);
        let lane = &mut self.lanes[at];
        self.lab.write(lane.stream, lane.region.from(offset), &content)?;
        lane.shadow[offset as usize..][..len as usize].copy_from_slice(&content);
        Ok(())
    }

    fn fill(&mut self, at: usize) -> Outcome {
        let (offset, len) = self.range(LEN as u64);
        let byte = self.random.next() as u8;
        let lane = &mut self.lanes[at];
        self.lab.fill(lane.stream, lane.region.part(offset, len), byte)?;
        lane.shadow[offset as usize..][..len as usize].fill(byte);
        Ok(())
    }

    /// From one half to the other, so that the ends don't overlap.
    fn copy_within(&mut self, at: usize) -> Outcome {
        let half = LEN as u64 / 2;
        let len = self.random.within(1, half + 1);
        let (from, to) = (self.random.below(half - len + 1), half + self.random.below(half - len + 1));
        let (from, to) = if self.random.one_in(2) { (from, to) } else { (to, from) };
        let lane = &mut self.lanes[at];
        self.lab.copy(lane.stream, lane.region.part(to, len), lane.region.part(from, len))?;
        lane.shadow.copy_within(from as usize..(from + len) as usize, to as usize);
        Ok(())
    }

    fn upload(&mut self, at: usize) -> Outcome {
        let (offset, len) = self.range(LEN as u64);
        let content = bytes(self.random.next(), len as usize);
        let lane = &mut self.lanes[at];
        self.lab.upload(lane.stream, lane.region.part(offset, len), self.lab.host(&content)?)?;
        lane.shadow[offset as usize..][..len as usize].copy_from_slice(&content);
        Ok(())
    }

    fn download(&mut self, at: usize) -> Outcome {
        let lane = &self.lanes[at];
        let host = self.lab.host(&vec![0; LEN])?;
        self.lab.download(lane.stream, host, lane.region)?;
        self.downloads.push((host, lane.shadow.clone()));
        Ok(())
    }

    /// Copies a part of another stream's region, with waits both ways.
    fn fetch(&mut self, at: usize) -> Outcome {
        let from = self.random.below(self.lanes.len() as u64) as usize;
        if from == at {
            return Ok(());
        }
        let (offset, len) = self.range(LEN as u64);
        let (reader, owner) = (&self.lanes[at], &self.lanes[from]);
        let written = self.lab.mark(owner.stream)?;
        self.lab.wait(reader.stream, owner.stream, written)?;
        self.lab.copy(reader.stream, reader.region.part(offset, len), owner.region.part(offset, len))?;
        let read = self.lab.mark(reader.stream)?;
        self.lab.wait(owner.stream, reader.stream, read)?;
        let part = self.lanes[from].shadow[offset as usize..][..len as usize].to_vec();
        self.lanes[at].shadow[offset as usize..][..len as usize].copy_from_slice(&part);
        Ok(())
    }

    /// A host function that takes its time now and then.
    fn call(&mut self, at: usize) -> Outcome {
        let pause = Duration::from_micros(if self.random.one_in(4) { 500 } else { 0 });
        let lane = &mut self.lanes[at];
        let (log, step) = (lane.log.clone(), lane.calls);
        lane.calls += 1;
        self.lab.call(lane.stream, move |_| {
            std::thread::sleep(pause);
            log.lock().unwrap_or_else(PoisonError::into_inner).push(step);
        })?;
        Ok(())
    }

    fn hold(&mut self, at: usize) -> Outcome {
        let held = self.holds.iter().any(|hold| hold.0 == at);
        if held || self.holds.len() >= 2 || self.lab.device(0).gates().is_none() {
            return Ok(());
        }
        let hold = self.lab.hold(self.lanes[at].stream)?;
        self.holds.push_back((at, hold));
        Ok(())
    }

    fn release(&mut self) -> Outcome {
        self.holds.pop_front().map_or(Ok(()), |(_, hold)| hold.release())
    }

    fn end(mut self, round: u64) -> Outcome {
        while !self.holds.is_empty() {
            self.release()?;
        }
        for (at, lane) in self.lanes.iter().enumerate() {
            let seen = self.lab.read(lane.stream, lane.region)?;
            same_bytes("H8", &format!("the region of stream {at} after program {round}"), &seen, &lane.shadow)?;
        }
        for (host, expected) in &self.downloads {
            same_bytes("H6", &format!("a download of program {round}"), &host.look(), expected)?;
        }
        for lane in &self.lanes {
            let log = lane.log.lock().unwrap_or_else(PoisonError::into_inner).clone();
            same("H13", "the order of one stream's host functions", log, (0..lane.calls).collect())?;
        }
        Ok(())
    }
}
