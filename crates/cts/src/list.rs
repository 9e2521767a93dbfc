//! Which cases prove what: every rule of the hal and every sentence of the public contract, with the cases behind it.

use crate::cases;
use crate::contract::SENTENCES;
use crate::rules::RULES;

/// Where a promise is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A numbered rule of `anyaccel-hal`.
    Rule,
    /// A sentence of the public contract.
    Sentence,
}

/// One promise.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Entry {
    /// `H8`, or `streams.pool-of-32`.
    pub id: String,
    /// Where it is made.
    pub source: Source,
    /// What is promised, in short.
    pub text: &'static str,
    /// The ids of the cases that prove it.
    pub cases: Vec<&'static str>,
    /// Why there is none, if there is none.
    pub no_case: Option<&'static str>,
}

/// Every promise, the rules first.
pub fn list() -> Vec<Entry> {
    let rules = RULES.iter().map(|rule| Entry {
        id: format!("H{}", rule.number),
        source: Source::Rule,
        text: rule.text,
        cases: cases::all().filter(|case| case.rules.contains(&rule.number)).map(|case| case.id).collect(),
        no_case: rule.no_case,
    });
    let sentences = SENTENCES.iter().map(|sentence| Entry {
        id: sentence.id.into(),
        source: Source::Sentence,
        text: sentence.text,
        cases: cases::all().filter(|case| case.sentences.contains(&sentence.id)).map(|case| case.id).collect(),
        no_case: sentence.no_case,
    });
    rules.chain(sentences).collect()
}
