//! The pinned cache: what its users call.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::oom::HostAllocError;
use super::policy::{HostPolicy, MAX_HOST_REQUEST, Placement};
use super::ports::HostPorts;
use super::state::{Life, State};
use super::stats::HostStats;
use super::{HostAllocation, HostHandle, HostUseError};
use crate::alloc::PortError;
use crate::history::{Action, GIVERS, StackId, StackSource, TAKERS};
use crate::sync::{self, AtomicU64, Mutex};

pub(super) type Guard<'a> = sync::Guard<'a, State>;

/// The cache of pinned host memory.
///
/// All methods may be called from any thread. None starts a runtime: the ports belong to one that runs. Methods that
/// call no port, and so may be called in a host function on a stream, say so.
///
/// A child of `fork` must not touch or drop its parent's cache: another thread may have held the lock.
pub struct HostCache {
    pub(super) ports: HostPorts,
    state: Mutex<State>,
    /// What a call has to look at before it takes the lock: the bits of `recording`.
    pub(super) notice: AtomicU64,
    /// Where a recording's stacks come from. Taken before the lock of the state, never after.
    pub(super) source: Mutex<Option<Arc<dyn StackSource>>>,
}

impl fmt::Debug for HostCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostCache").field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl HostCache {
    /// A cache over these ports, which it does not call yet.
    pub fn new(ports: HostPorts, policy: HostPolicy) -> Self {
        HostCache { ports, state: Mutex::new(State::new(policy)), notice: AtomicU64::new(0), source: Mutex::new(None) }
    }

    /// A panic under the lock would be a bug of this module, and no reason to take the process down with it.
    #[inline]
    pub(super) fn lock(&self) -> Guard<'_> {
        let mut state = self.state.lock();
        state.caller = StackId::EMPTY;
        state
    }

    /// Takes `size` bytes of pinned memory. `None` for 0 bytes: nothing is counted. A hit calls no port.
    ///
    /// When the port has no room, everything unused is given back (but for a capture) and the port asked once more. It
    /// never waits for a stream, since the work there may wait for this thread.
    ///
    /// # Errors
    /// [`HostAllocError`].
    #[inline]
    pub fn alloc(&self, size: u64) -> Result<Option<HostAllocation>, HostAllocError> {
        if size == 0 {
            return Ok(None);
        }
        if size >= MAX_HOST_REQUEST {
            return Err(HostAllocError::TooLarge(size));
        }
        let mut state = self.enter(TAKERS);
        if state.untidy() {
            state = self.tidy(state);
        }
        if state.closed {
            return Err(HostAllocError::Closed);
        }
        let want = state.policy.place(size);
        if let Some(id) = state.take(want) {
            return Ok(Some(state.hand_out(id, size)));
        }
        self.miss(state, want, size).map(Some)
    }

    fn miss(&self, state: Guard<'_>, want: Placement, requested: u64) -> Result<HostAllocation, HostAllocError> {
        let (mut state, asked) = self.ask(state);
        if let Some(id) = state.take(want) {
            return Ok(state.hand_out(id, requested));
        }
        asked.map_err(|fault| HostAllocError::Port { call: "completed", fault })?;
        if !state.capturing() {
            state.doom_outgrown(want);
            (state, _) = self.release_doomed(state);
        }
        let mut retried = false;
        loop {
            let caller = state.caller;
            drop(state);
            let start = Instant::now();
            let outcome = self.ports.segments.alloc(want.size);
            let took = start.elapsed();
            state = self.lock_as(caller);
            match outcome {
                Ok(raw) => {
                    let id = state.adopt(raw, want.exact);
                    state.stats.obtained(raw.len, took);
                    if state.closed {
                        state.doom(id);
                        drop(self.release_doomed(state));
                        return Err(HostAllocError::Closed);
                    }
                    return Ok(state.hand_out(id, requested));
                }
                Err(PortError::OutOfMemory) if !retried && !state.capturing() => {
                    retried = true;
                    state.stats.num_alloc_retries += 1;
                    (state, _) = self.look(state);
                    // Another thread, or a stream, may be done with a block that fits by now.
                    if let Some(id) = state.take(want) {
                        return Ok(state.hand_out(id, requested));
                    }
                    (state, _) = self.release_unused(state);
                }
                Err(PortError::OutOfMemory) => {
                    state.stats.num_ooms += 1;
                    state.note_segment(Action::Oom, 0, requested);
                    return Err(HostAllocError::OutOfMemory(state.out_of_memory(requested, want.size)));
                }
                Err(fault) => return Err(HostAllocError::Port { call: "alloc", fault }),
            }
        }
    }

    /// Notes that work up to `mark` on `stream` uses a block. Calls no port.
    ///
    /// # Errors
    /// [`HostUseError::Stale`].
    #[inline]
    pub fn record(&self, handle: HostHandle, stream: u64, mark: u64) -> Result<(), HostUseError> {
        let mut state = self.lock();
        let id = state.live(handle)?;
        state.note(id, stream, Some(mark));
        Ok(())
    }

    /// Notes that work on `stream` uses a block, with everything that is on the stream when the block is given back.
    /// Calls no port.
    ///
    /// # Errors
    /// [`HostUseError::Stale`].
    #[inline]
    pub fn record_stream(&self, handle: HostHandle, stream: u64) -> Result<(), HostUseError> {
        let mut state = self.lock();
        let id = state.live(handle)?;
        state.note(id, stream, None);
        Ok(())
    }

    /// Gives a block back. It is handed out again once the work that was recorded for it has ended.
    ///
    /// # Errors
    /// [`HostUseError::Stale`].
    #[inline]
    pub fn free(&self, handle: HostHandle) -> Result<(), HostUseError> {
        self.free_used(handle, &[])
    }

    /// [`free`](HostCache::free), with the streams that used it, where it was not recorded.
    ///
    /// # Errors
    /// [`HostUseError::Stale`].
    #[inline]
    pub fn free_used(&self, handle: HostHandle, streams: &[u64]) -> Result<(), HostUseError> {
        let mut state = self.enter(GIVERS);
        let id = state.live(handle)?;
        for &stream in streams {
            state.note(id, stream, None);
        }
        state.give_back(id);
        if state.untidy() {
            drop(self.tidy(state));
        }
        Ok(())
    }

    /// [`free_used`](HostCache::free_used) that calls no port, for host functions: marks are made, and what is not to
    /// be cached is given back, by the next allocation or free elsewhere.
    ///
    /// # Errors
    /// [`HostUseError::Stale`].
    pub fn free_quietly(&self, handle: HostHandle, streams: &[u64]) -> Result<(), HostUseError> {
        let mut state = self.enter(GIVERS);
        let id = state.live(handle)?;
        for &stream in streams {
            state.note(id, stream, None);
        }
        state.give_back(id);
        Ok(())
    }

    /// Gives back the block that starts at an address; 0 is no block and no error.
    ///
    /// # Errors
    /// [`HostUseError::Unknown`], [`HostUseError::Interior`].
    pub fn free_at(&self, addr: u64) -> Result<(), HostUseError> {
        if addr == 0 {
            return Ok(());
        }
        let mut state = self.enter(GIVERS);
        let id = state.containing(addr).ok_or(HostUseError::Unknown(addr))?;
        let start = state.block(id).raw.addr;
        if start != addr {
            return Err(HostUseError::Interior { addr, start });
        }
        state.give_back(id);
        if state.untidy() {
            drop(self.tidy(state));
        }
        Ok(())
    }

    /// The live block that an address, of its start or inside it, lies in: whether memory is pinned, and by which name a
    /// use through an interior pointer is recorded. Calls no port.
    pub fn find(&self, addr: u64) -> Option<HostHandle> {
        let state = self.lock();
        state.containing(addr).map(|id| state.view(id).handle)
    }

    /// What a live handle stands for. Calls no port.
    ///
    /// # Errors
    /// [`HostUseError::Stale`].
    pub fn get(&self, handle: HostHandle) -> Result<HostAllocation, HostUseError> {
        let state = self.lock();
        Ok(state.view(state.live(handle)?))
    }

    /// Looks which given back blocks are reusable by now, so that the statistics say so. Never waits; does nothing
    /// during a capture.
    ///
    /// # Errors
    /// The first call to a port that failed; what it concerns stays pending.
    pub fn poll(&self) -> Result<(), PortError> {
        let (state, looked) = self.look(self.lock());
        let (_state, released) = self.release_doomed(state);
        looked.and(released.fault.map_or(Ok(()), Err))
    }

    /// Gives back everything unused: all that is neither in a user's hands nor used by work that has not ended. Returns
    /// the bytes given back. Never waits for a stream; does nothing during a capture.
    ///
    /// # Errors
    /// The first call to a port that failed; what it concerns stays held, all else was given back.
    pub fn trim(&self) -> Result<u64, PortError> {
        let (state, looked) = self.look(self.enter_as(Some("empty_cache")));
        let (_state, released) = self.release_unused(state);
        looked.and(released.fault.map_or(Ok(released.bytes), Err))
    }

    /// A capture begins on `stream`. Calls no port.
    pub fn capture_begin(&self, stream: u64) {
        let mut state = self.lock();
        if !state.captures.contains(&stream) {
            state.captures.push(stream);
        }
    }

    /// The capture on `stream` has ended, however it did. Calls no port: what waited for it is looked at by the next
    /// allocation or free.
    pub fn capture_end(&self, stream: u64) {
        self.lock().captures.retain(|&s| s != stream);
    }

    /// The policy in force. Calls no port.
    pub fn policy(&self) -> HostPolicy {
        self.lock().policy
    }

    /// Puts another policy in force for later requests and frees. Blocks that are cached stay until a trim. Calls no
    /// port.
    pub fn set_policy(&self, policy: HostPolicy) {
        self.lock().policy = policy.sound();
    }

    /// All counters. Calls no port: a block counts as active until a call has found its uses ended;
    /// [`poll`](HostCache::poll) looks.
    pub fn stats(&self) -> HostStats {
        self.lock().stats
    }

    /// Peaks := the values now; the longest and shortest times are measured anew. Calls no port.
    pub fn reset_peaks(&self) {
        self.lock().stats.reset_peaks();
    }

    /// Accumulated numbers := 0. Calls no port.
    pub fn reset_accumulated(&self) {
        self.lock().stats.reset_accumulated();
    }

    /// Gives back everything unused, even during a capture, and refuses requests from now on. A block that is freed
    /// later goes back to the port once its uses have ended. Returns what users or streams still have: nobody may take
    /// that memory from them, so without a later free it stays theirs.
    ///
    /// # Errors
    /// The first call to a port that failed.
    pub fn close(&self) -> (Vec<HostAllocation>, Result<(), PortError>) {
        let mut state = self.lock();
        state.closed = true;
        state.captures.clear();
        let ids = 0..state.blocks.len() as u32;
        for id in ids.clone() {
            let block = state.block(id);
            let discards = block.life == Life::Pending && !block.discard;
            block.discard = true;
            state.pending_discards += u32::from(discards);
        }
        let (state, looked) = self.look(state);
        let (state, released) = self.release_unused(state);
        let left = |&id: &u32| matches!(state.blocks[id as usize].life, Life::Live | Life::Parked | Life::Pending);
        let left = ids.filter(left).map(|id| state.view(id)).collect();
        (left, looked.and(released.fault.map_or(Ok(()), Err)))
    }
}

impl Drop for HostCache {
    /// Closes the cache. Memory that streams still use then is left to them for good.
    fn drop(&mut self) {
        let _ = self.close();
    }
}
