//! Generators: a seed, and how far the sequence that it starts was drawn.

use super::entropy;
use super::seed::Seed;
use super::shared::{Shared, Snapshot};
use crate::error::Result;
use anyaccel_engine::random::{self as engine, Plan, State};
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
        let state = self.state();
        f.debug_struct("Generator").field("seed", &state.seed()).field("offset", &state.offset()).finish()
    }
}

impl Default for Generator {
    fn default() -> Self {
        Self::new()
    }
}

impl Generator {
    /// The seed of a new generator, PyTorch's.
    pub const DEFAULT_SEED: u64 = engine::DEFAULT_SEED;

    /// A generator with the seed [`Generator::DEFAULT_SEED`].
    pub fn new() -> Self {
        Self::share(&engine::Generator::new())
    }

    /// A generator with a seed.
    ///
    /// # Errors
    /// [`Error::Generator`](crate::Error::Generator) for a seed that 64 bits can't hold.
    pub fn seeded(seed: impl Into<Seed>) -> Result<Self> {
        let seed = seed.into().check()?;
        let mut generator = engine::Generator::new();
        generator.manual_seed(seed);
        Ok(Self::share(&generator))
    }

    /// The default generator of a device, made from what the parent process left if it left one.
    pub(crate) fn of_device(left: Option<Snapshot>) -> Self {
        let bits = entropy::bits();
        let fresh = || engine::Generator::from_entropy(bits);
        Self::share(&left.map_or_else(fresh, |left| left.generator().in_child(bits)))
    }

    fn share(generator: &engine::Generator) -> Self {
        Self { shared: Arc::new(Shared::new(Snapshot::of(generator))) }
    }

    /// Seeds it; the offset becomes 0.
    ///
    /// # Errors
    /// [`Error::Generator`](crate::Error::Generator) for a seed that 64 bits can't hold; nothing has changed then.
    pub fn manual_seed(&self, seed: impl Into<Seed>) -> Result<()> {
        let seed = seed.into().check()?;
        self.change(|generator| generator.manual_seed(seed));
        Ok(())
    }

    /// Seeds it with 53 random bits, and returns them.
    pub fn seed(&self) -> u64 {
        let bits = entropy::bits();
        self.change(|generator| generator.seed(bits))
    }

    /// The seed.
    pub fn initial_seed(&self) -> u64 {
        self.state().seed()
    }

    /// How far the sequence was drawn, in words of 32 bits; a multiple of 4.
    pub fn offset(&self) -> u64 {
        self.state().offset()
    }

    /// Goes to a place in the sequence.
    ///
    /// # Errors
    /// [`Error::Generator`](crate::Error::Generator) unless it is a multiple of 4 from 0 to 2^63 - 4; nothing has changed then.
    pub fn set_offset(&self, offset: impl Into<i128>) -> Result<()> {
        let offset = offset.into();
        Ok(self.change(|generator| generator.set_offset(offset))?)
    }

    /// Seed and offset.
    pub fn state(&self) -> State {
        self.shared.read().generator().state()
    }

    /// Sets seed and offset.
    pub fn set_state(&self, state: State) {
        self.change(|generator| generator.set_state(state));
    }

    /// Takes the next so many words of the sequence, for numbers that are drawn elsewhere, and returns where they begin.
    ///
    /// # Errors
    /// [`Error::Generator`](crate::Error::Generator) if the sequence ends before; nothing has changed then.
    pub fn take(&self, words: u64) -> Result<State> {
        Ok(self.change(|generator| {
            let start = generator.state();
            let end = i128::from(start.offset()) + i128::from(words.div_ceil(4)) * 4;
            generator.set_offset(end).map(|()| start)
        })?)
    }

    /// Takes what a fill needs of the sequence, and returns where it begins.
    #[inline]
    pub(super) fn draw(&self, plan: &Plan) -> Result<State> {
        Ok(self.change(|generator| generator.draw(plan))?)
    }

    #[inline]
    fn change<T>(&self, change: impl FnOnce(&mut engine::Generator) -> T) -> T {
        self.shared.change(|snapshot| {
            let mut generator = snapshot.generator();
            let result = change(&mut generator);
            *snapshot = Snapshot::of(&generator);
            result
        })
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.shared.read()
    }

    pub(super) fn restore(&self, snapshot: Snapshot) {
        self.shared.change(|current| *current = snapshot);
    }

    /// What it was when this process was forked from the one that made it.
    pub(super) fn left_by_parent(&self) -> Snapshot {
        self.shared.left_by_parent()
    }
}
