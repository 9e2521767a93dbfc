//! What a forked child begins with: generators that were seeded by choice begin with that seed, the others with one of
//! their own.
//!
//! The child reads its parent's process-wide runtime, of which it may touch atomics alone. A runtime that had started
//! tells by its generators. One that had not tells by [`Seeds`]: which seeds it would have started with.

use super::shared::{Shared, Snapshot};
use crate::fork;
use crate::runtime::Core;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds chosen before the start, the child's own copy of its parent's included.
#[derive(Default)]
pub(crate) struct Seeds {
    inherited: Vec<Chosen>,
    turn: AtomicU64,
    chosen: Chain,
}

/// Who chose last, of a device or of all.
#[derive(Clone, Copy)]
struct Chosen {
    device: Option<u32>,
    /// Rises with each choice.
    turn: u64,
    generator: Snapshot,
}

/// A list that only grows. A lock is taken for adding alone: reading an entry that is being added finds none.
type Chain = OnceLock<Box<Link>>;

struct Link {
    device: Option<u32>,
    /// Its offset is the turn.
    state: Shared,
    next: Chain,
}

impl Seeds {
    /// What this process inherits from its parent, if it was forked.
    pub(crate) fn inherit() -> Self {
        // SAFETY: null or a process-wide core, which is never freed.
        let parent = unsafe { fork::PARENT.load(Ordering::Acquire).as_ref() };
        let inherited = parent.map(left_by).unwrap_or_default();
        let turn = inherited.iter().map(|chosen| chosen.turn).max().unwrap_or(0);
        Self { inherited, turn: AtomicU64::new(turn), chosen: Chain::new() }
    }

    /// Notes what a generator becomes at the start. Of all devices if none is named.
    pub(super) fn note(&self, device: Option<u32>, becomes: Snapshot) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) + 1;
        let state = Snapshot { offset: turn, ..becomes };
        let mut chain = &self.chosen;
        loop {
            match chain.get() {
                Some(link) if link.device == device => {
                    return link.state.change(|known| {
                        if known.offset < turn {
                            *known = state;
                        }
                    });
                }
                Some(link) => chain = &link.next,
                // If another thread was quicker, its entry is the next to be looked at.
                None => drop(chain.set(Box::new(Link { device, state: Shared::new(state), next: Chain::new() }))),
            }
        }
    }

    /// What the parent left of a device's generator, without the offset.
    pub(crate) fn inherited(&self, device: u32) -> Option<Snapshot> {
        let of_device = self.inherited.iter().filter(|chosen| chosen.device.is_none_or(|own| own == device));
        of_device.max_by_key(|chosen| chosen.turn).map(|chosen| chosen.generator)
    }
}

/// What a parent's runtime would go on with.
fn left_by(parent: &Core) -> Vec<Chosen> {
    // SAFETY: null or what the process-wide core has published, which is never freed.
    if let Some(live) = unsafe { parent.live.load(Ordering::Acquire).as_ref() } {
        let states = live.generators.iter().map(super::Generator::left_by_parent);
        let chosen =
            |(device, state): (u32, Snapshot)| Chosen { device: Some(device), turn: 0, generator: without(state) };
        return (0..).zip(states).map(chosen).collect();
    }
    let mut seeds = parent.seeds.inherited.clone();
    let mut chain = &parent.seeds.chosen;
    while let Some(link) = chain.get() {
        let state = link.state.left_by_parent();
        seeds.push(Chosen { device: link.device, turn: state.offset, generator: without(state) });
        chain = &link.next;
    }
    seeds
}

fn without(state: Snapshot) -> Snapshot {
    Snapshot { offset: 0, ..state }
}
