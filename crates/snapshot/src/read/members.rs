//! The members of a gzip file, one after the other.

use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, Read};

/// What a gzip member begins with.
const BEGINS: u8 = 0x1f;

/// What is packed in all members. What follows the last one is left alone, as what follows a plain pickle is: padding, or a file
/// that was written into a longer one.
pub(super) struct Members<R> {
    /// `None` behind the last member.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Members<R> {
    pub(super) fn new(input: R) -> Self {
        Self { member: Some(GzDecoder::new(input)) }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(to)?;
            if read > 0 || to.is_empty() {
                return Ok(read);
            }
            let Some(ended) = self.member.take() else { break };
            let mut input = ended.into_inner();
            if input.fill_buf()?.first() == Some(&BEGINS) {
                self.member = Some(GzDecoder::new(input));
            }
        }
        Ok(0)
    }
}
