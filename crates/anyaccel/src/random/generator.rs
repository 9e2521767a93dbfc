//! Generators: a seed, and how far the sequence that it starts was drawn.

use super::entropy;
use super::seed::Seed;
use super::shared::{Shared, Snapshot};
use super::state::State;
use crate::error::{Error, Result};
use crate::fork;
use std::fmt;
use std::sync::Arc;

/// A generator of its own, for any device: pass it in [`Options`](super::Options). A handle; clones are the same
/// generator, and may be used from any thread at the same time. Starts nothing.
///
/// A child of a fork has a copy, which goes on from where the original was. Devices have default generators besides: see
/// [`manual_seed`](super::manual_seed).
/// [`torch.Generator`](https://pytorch.org/docs/stable/generated/torch.Generator.html)
///
/// ```
/// use anyaccel::random::{Distribution, Generator, Options};
/// # let runtime = anyaccel::Runtime::builder().backend("host").build()?;
/// # let stream = runtime.current_stream(())?;
/// let generator = Generator::seeded(7)?;
/// let options = Options { generator: Some(&generator), ..Options::default() };
/// let (a, b) = (runtime.array::<f32>(10)?, runtime.array::<f32>(10)?);
/// a.random(&stream, Distribution::UNIFORM, &options)?;
/// assert_eq!(generator.offset(), 12, "three calls of four words");
/// generator.manual_seed(7)?;
/// b.random(&stream, Distribution::UNIFORM, &options)?;
/// assert_eq!(a.to_vec()?, b.to_vec()?);
/// # Ok::<(), anyaccel::Error>(())
/// ```
#[derive(Clone)]
pub struct Generator {
    shared: Arc<Shared>,
}

impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Snapshot { seed, offset, .. } = self.shared.read();
        f.debug_struct("Generator").field("seed", &seed).field("offset", &offset).finish()
    }
}

impl Default for Generator {
    fn default() -> Self {
        Self::new()
    }
}

impl Generator {
    /// The seed of a new generator, PyTorch's.
    pub const DEFAULT_SEED: u64 = 67_280_421_310_721;

    /// A generator with the seed [`Generator::DEFAULT_SEED`].
    pub fn new() -> Self {
        Self::from_snapshot(Snapshot { seed: Self::DEFAULT_SEED, offset: 0, chosen: true })
    }

    /// A generator with a seed.
    ///
    /// # Errors
    /// [`Error::SeedRange`].
    pub fn seeded(seed: impl Into<Seed>) -> Result<Self> {
        let seed = seed.into().get()?;
        Ok(Self::from_snapshot(Snapshot { seed, offset: 0, chosen: true }))
    }

    /// The default generator of a device: with the seed that the parent process chose, if one did.
    pub(crate) fn of_device(inherited: Option<u64>) -> Self {
        let seed = inherited.unwrap_or_else(entropy::seed);
        Self::from_snapshot(Snapshot { seed, offset: 0, chosen: inherited.is_some() })
    }

    fn from_snapshot(state: Snapshot) -> Self {
        fork::install();
        Self { shared: Arc::new(Shared::new(state)) }
    }

    /// Seeds it; the offset becomes 0.
    ///
    /// # Errors
    /// [`Error::SeedRange`]; nothing has changed then.
    pub fn manual_seed(&self, seed: impl Into<Seed>) -> Result<()> {
        let seed = seed.into().get()?;
        self.replace(Snapshot { seed, offset: 0, chosen: true });
        Ok(())
    }

    /// Seeds it with 53 random bits, and returns them.
    pub fn seed(&self) -> u64 {
        let seed = entropy::seed();
        self.replace(Snapshot { seed, offset: 0, chosen: false });
        seed
    }

    /// The seed.
    pub fn initial_seed(&self) -> u64 {
        self.shared.read().seed
    }

    /// How far the sequence was drawn, a multiple of 4: each call of Philox gives four words.
    pub fn offset(&self) -> u64 {
        self.shared.read().offset
    }

    /// Goes to a place in the sequence.
    ///
    /// # Errors
    /// [`Error::RngOffset`] unless it is a multiple of 4 below 2^63; nothing has changed then.
    pub fn set_offset(&self, offset: u64) -> Result<()> {
        let offset = State::new(0, offset)?.offset();
        self.shared.change(|state| state.offset = offset);
        Ok(())
    }

    /// Seed and offset.
    pub fn state(&self) -> State {
        let Snapshot { seed, offset, .. } = self.shared.read();
        State::of(seed, offset)
    }

    /// Sets seed and offset.
    pub fn set_state(&self, state: State) {
        self.replace(Snapshot { seed: state.seed(), offset: state.offset(), chosen: true });
    }

    /// Takes the next part of the sequence, `words` long (a multiple of 4), and returns where it begins.
    pub(super) fn take(&self, words: u64) -> Result<State> {
        self.shared.change(|state| {
            let taken = State::of(state.seed, state.offset);
            match state.offset.checked_add(words).filter(|&after| after < 1 << 63) {
                Some(after) => state.offset = after,
                None => return Err(Error::RngExhausted { offset: state.offset, words }),
            }
            Ok(taken)
        })
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.shared.read()
    }

    pub(super) fn replace(&self, state: Snapshot) {
        self.shared.change(|current| *current = state);
    }

    /// What it was when this process was forked, in which it was made.
    pub(super) fn left_by_parent(&self) -> Snapshot {
        self.shared.left_by_parent()
    }
}
