//! As much of a SPIR-V compiler as tells good modules from bad ones: the kernels of a module, and their arguments.

use std::collections::HashMap;

/// What a kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Param {
    /// So many bytes.
    Value(usize),
    /// An address in memory.
    Global,
    /// Memory of the group, whose size the host sets.
    Local,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) params: Vec<Param>,
}

const MAGIC: u32 = 0x0723_0203;

mod op {
    pub(super) const CAPABILITY: u32 = 17;
    pub(super) const ENTRY_POINT: u32 = 15;
    pub(super) const TYPE_BOOL: u32 = 20;
    pub(super) const TYPE_INT: u32 = 21;
    pub(super) const TYPE_FLOAT: u32 = 22;
    pub(super) const TYPE_VECTOR: u32 = 23;
    pub(super) const TYPE_ARRAY: u32 = 28;
    pub(super) const TYPE_STRUCT: u32 = 30;
    pub(super) const TYPE_POINTER: u32 = 32;
    pub(super) const TYPE_FUNCTION: u32 = 33;
    pub(super) const CONSTANT: u32 = 43;
    pub(super) const FUNCTION: u32 = 54;
    pub(super) const FUNCTION_PARAMETER: u32 = 55;
    pub(super) const FUNCTION_END: u32 = 56;
    pub(super) const DECORATE: u32 = 71;
}

const KERNEL_MODEL: u32 = 6;
const FUNCTION_CLASS: u32 = 7;
const WORKGROUP_CLASS: u32 = 4;
const CAPABILITY_FLOAT16: u32 = 9;
const CAPABILITY_FLOAT64: u32 = 10;
const CAPABILITY_SHADER: u32 = 1;
const CPACKED: u32 = 10;
/// Bytes that a part of an argument may have.
const MOST: usize = 1 << 20;

#[derive(Clone, Copy)]
struct Layout {
    size: usize,
    align: usize,
}

#[derive(Default)]
struct Module {
    entries: Vec<(u32, String)>,
    layouts: HashMap<u32, Layout>,
    /// Types of pointers: the class of what they point to, and its type.
    pointers: HashMap<u32, (u32, u32)>,
    constants: HashMap<u32, u32>,
    packed: Vec<u32>,
    /// Types of the parameters of functions.
    functions: HashMap<u32, Vec<u32>>,
}

/// What a device takes.
pub(crate) struct Target {
    /// Version, as the first words of a module have it.
    pub(crate) most: (u32, u32),
    pub(crate) fp16: bool,
    pub(crate) fp64: bool,
}

/// Reads a module; a refusal comes with the log.
pub(crate) fn compile(bytes: &[u8], target: &Target) -> Result<Vec<Entry>, String> {
    let error = |what: String| format!("error: {what}\n");
    let (words, rest) = bytes.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|&word| u32::from_le_bytes(word)).collect();
    if !rest.is_empty() || words.len() < 5 || words[0] != MAGIC {
        return Err(error("not a SPIR-V module".into()));
    }
    let version = (words[1] >> 16 & 0xFF, words[1] >> 8 & 0xFF);
    if version > target.most {
        return Err(error(format!("SPIR-V {}.{} is not supported", version.0, version.1)));
    }
    let mut module = Module::default();
    let (mut at, mut current) = (5, None);
    while at < words.len() {
        let (count, code) = ((words[at] >> 16) as usize, words[at] & 0xFFFF);
        let Some(words) = words.get(at + 1..at + count).filter(|_| count > 0) else {
            return Err(error(format!("the instruction at word {at} does not end within the module")));
        };
        module.read(code, words, target, &mut current).map_err(|what| error(format!("word {at}: {what}")))?;
        at += count;
    }
    if current.is_some() {
        return Err(error("a function does not end".into()));
    }
    module.finish().map_err(error)
}

impl Module {
    fn read(&mut self, code: u32, words: &[u32], target: &Target, current: &mut Option<u32>) -> Result<(), String> {
        let word = |at: usize| words.get(at).copied().ok_or_else(|| format!("instruction {code} is too short"));
        match code {
            op::CAPABILITY => match word(0)? {
                CAPABILITY_FLOAT16 if !target.fp16 => return Err("Float16 is not supported".into()),
                CAPABILITY_FLOAT64 if !target.fp64 => return Err("Float64 is not supported".into()),
                CAPABILITY_SHADER => return Err("the capability Shader is not supported".into()),
                _ => {}
            },
            op::ENTRY_POINT => {
                if word(0)? != KERNEL_MODEL {
                    return Err("an entry point that is no kernel".into());
                }
                let name = words.get(2..).unwrap_or_default();
                let bytes: Vec<u8> = name.iter().flat_map(|word| word.to_le_bytes()).collect();
                let end = bytes.iter().position(|&byte| byte == 0).ok_or("a name without an end")?;
                let name = String::from_utf8(bytes[..end].to_vec()).map_err(|_| "a name that is no text")?;
                self.entries.push((word(1)?, name));
            }
            op::TYPE_BOOL => self.simple(word(0)?, 1),
            op::TYPE_INT | op::TYPE_FLOAT => self.simple(word(0)?, word(1)? as usize / 8),
            op::TYPE_VECTOR => {
                let lanes = (word(2)? as usize).next_power_of_two();
                let size = self.layout(word(1)?)?.size.saturating_mul(lanes);
                self.simple(word(0)?, size);
            }
            op::CONSTANT => {
                self.constants.insert(word(1)?, word(2)?);
            }
            op::TYPE_ARRAY => {
                let Layout { size, align } = self.layout(word(1)?)?;
                let count = *self.constants.get(&word(2)?).ok_or("an array of no known length")?;
                let size = size.saturating_mul(count as usize);
                self.layouts.insert(word(0)?, Layout { size, align });
            }
            op::DECORATE if word(1)? == CPACKED => self.packed.push(word(0)?),
            op::TYPE_STRUCT => {
                let packed = self.packed.contains(&word(0)?);
                let mut whole = Layout { size: 0, align: 1 };
                for &member in &words[1..] {
                    // Structs of things that no argument is made of have no layout.
                    let Ok(Layout { size, align }) = self.layout(member) else { return Ok(()) };
                    let align = if packed { 1 } else { align };
                    whole.size = whole.size.next_multiple_of(align).saturating_add(size);
                    whole.align = whole.align.max(align);
                }
                whole.size = whole.size.next_multiple_of(whole.align);
                self.layouts.insert(word(0)?, whole);
            }
            op::TYPE_POINTER => {
                self.pointers.insert(word(0)?, (word(1)?, word(2)?));
                self.simple(word(0)?, 8);
            }
            op::TYPE_FUNCTION => {}
            op::FUNCTION => {
                if current.replace(word(1)?).is_some() {
                    return Err("a function within a function".into());
                }
                self.functions.insert(word(1)?, Vec::new());
            }
            op::FUNCTION_PARAMETER => {
                let function = current.ok_or("a parameter of no function")?;
                self.functions.entry(function).or_default().push(word(0)?);
            }
            op::FUNCTION_END => {
                current.take().ok_or("the end of no function")?;
            }
            _ => {}
        }
        Ok(())
    }

    fn simple(&mut self, id: u32, size: usize) {
        self.layouts.insert(id, Layout { size, align: size.max(1) });
    }

    fn layout(&self, id: u32) -> Result<Layout, String> {
        let fits = |layout: &&Layout| layout.size <= MOST;
        self.layouts
            .get(&id)
            .filter(fits)
            .copied()
            .ok_or_else(|| format!("%{id} has no known size, or too large a one"))
    }

    fn finish(self) -> Result<Vec<Entry>, String> {
        let one = |(function, name): &(u32, String)| {
            let types = self.functions.get(function).ok_or_else(|| format!("{name} is not defined"))?;
            let params = types.iter().map(|&id| match self.pointers.get(&id) {
                // A struct by value.
                Some(&(FUNCTION_CLASS, of)) => Ok(Param::Value(self.layout(of)?.size)),
                Some(&(WORKGROUP_CLASS, _)) => Ok(Param::Local),
                Some(_) => Ok(Param::Global),
                None => Ok(Param::Value(self.layout(id)?.size)),
            });
            Ok(Entry { name: name.clone(), params: params.collect::<Result<_, String>>()? })
        };
        self.entries.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Param, Target, compile};

    const TARGET: Target = Target { most: (1, 4), fp16: true, fp64: true };

    /// A module of such instructions.
    fn module(version: u32, instructions: &[(u32, &[u32])]) -> Vec<u32> {
        let mut words = vec![super::MAGIC, version << 8, 0, 64, 0];
        for (code, operands) in instructions {
            words.push((operands.len() as u32 + 1) << 16 | code);
            words.extend_from_slice(operands);
        }
        words
    }

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// A kernel `k` that takes memory, a struct of 16 bytes and a number of 8, the same packed behind a byte, memory of the
    /// group, and half a word.
    fn kernel(capability: u32) -> Vec<u32> {
        module(
            0x100,
            &[
                (17, &[6]),
                (17, &[capability]),
                (15, &[6, 1, u32::from(b'k')]),
                (71, &[12, 10]),
                (19, &[2]),
                (21, &[3, 8, 0]),
                (21, &[4, 64, 0]),
                (21, &[5, 16, 0]),
                (43, &[4, 6, 16, 0]),
                (28, &[7, 3, 6]),
                (30, &[8, 7, 4]),
                (30, &[12, 3, 4]),
                (32, &[9, 5, 3]),
                (32, &[10, 7, 8]),
                (32, &[13, 7, 12]),
                (32, &[11, 4, 3]),
                (33, &[14, 2, 9, 10, 13, 11, 5]),
                (54, &[2, 1, 0, 14]),
                (55, &[9, 20]),
                (55, &[10, 21]),
                (55, &[13, 22]),
                (55, &[11, 23]),
                (55, &[5, 24]),
                (248, &[25]),
                (253, &[]),
                (56, &[]),
            ],
        )
    }

    #[test]
    fn arguments_have_the_sizes_of_their_types() {
        let entries = compile(&bytes(&kernel(11)), &TARGET).expect("a good module");
        let [entry] = &entries[..] else { panic!("{entries:?}") };
        assert_eq!(entry.name, "k");
        let params = [Param::Global, Param::Value(24), Param::Value(9), Param::Local, Param::Value(2)];
        assert_eq!(entry.params, params);
    }

    #[test]
    fn what_a_device_lacks_is_refused() {
        let refused = |words: &[u32], target: &Target, why: &str| {
            let log = compile(&bytes(words), target).expect_err(why);
            assert!(log.contains(why), "{log}");
        };
        refused(&kernel(10), &Target { fp64: false, ..TARGET }, "Float64");
        refused(&kernel(9), &Target { fp16: false, ..TARGET }, "Float16");
        refused(&kernel(1), &TARGET, "Shader");
        refused(&module(0x105, &[]), &TARGET, "SPIR-V 1.5 is not supported");
        refused(&module(0x100, &[(15, &[6, 1, u32::from(b'k')])]), &TARGET, "k is not defined");
        refused(&[0, 1, 2, 3, 4], &TARGET, "not a SPIR-V module");
    }

    #[test]
    fn damaged_modules_are_refused_or_read() {
        let good = kernel(11);
        for at in 0..good.len() {
            for value in [0, 1, 0x7FFF_FFFF, u32::MAX, good[at] ^ 1, good[at] ^ 0x1_0000, good[at].wrapping_add(9)] {
                let mut damaged = good.clone();
                damaged[at] = value;
                // Either is fine, as long as it is an answer.
                let _answer = compile(&bytes(&damaged), &TARGET);
            }
            let cut = compile(&bytes(&good[..at]), &TARGET);
            assert!(at >= 5 || cut.is_err(), "{at} words");
        }
    }
}
