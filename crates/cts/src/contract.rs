//! The sentences of the public contract, numbered by subject.

/// A promise of the face.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sentence {
    pub(crate) id: &'static str,
    /// What is promised, in short.
    pub(crate) text: &'static str,
    /// Why no case can prove it, where none can.
    pub(crate) no_case: Option<&'static str>,
}

/// Every sentence, in the order of the contract.
pub(crate) const SENTENCES: &[Sentence] = &[];
