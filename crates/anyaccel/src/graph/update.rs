//! Changing a captured graph without capturing it again.

use super::{Argument, Graph, GraphError, Spot, Work};
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::kernel::LaunchArg;
use crate::port::Block;
use anyaccel_engine::graph::{Call, Work as _};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A change of a captured graph.
#[derive(Clone, Copy, Debug)]
pub enum GraphUpdate<'a> {
    /// An argument of a kernel: a value by one of the same length, a buffer or local memory by another.
    Argument {
        /// The node, by its place in [`Graph::nodes`].
        node: usize,
        /// Which of its arguments.
        argument: usize,
        /// What it is from now on.
        value: LaunchArg<'a>,
    },
    /// Every use of a buffer, in every node, goes to another one, at least as far as its uses reach into the old one.
    Buffer {
        /// The buffer that the graph uses.
        old: &'a Buffer,
        /// The one that it uses from now on.
        new: &'a Buffer,
    },
}

impl Graph {
    /// Changes what later replays do; those that are enqueued are not touched. All changes are made, or none. Buffers that
    /// are no longer used are kept until the graph is reset.
    ///
    /// # Errors
    /// [`GraphError::NoNode`], [`GraphError::Update`], [`GraphError::NotUsed`]; [`GraphError::NotCaptured`],
    /// [`GraphError::StillCapturing`]; [`Error::ForeignRuntime`], [`Error::ForeignDevice`], [`Error::Range`],
    /// [`Error::Misaligned`]; the driver's.
    ///
    /// # Safety
    /// As for [`Stream::launch`](crate::Stream::launch), for every kernel whose arguments change: they are what it
    /// expects, and what it then uses is used by nothing else at the same time in a way that conflicts.
    pub unsafe fn update(&self, changes: &[GraphUpdate<'_>]) -> Result<()> {
        let mut state = self.0.state("Graph.update")?;
        state.step("update", Call::Inspect)?;
        let Some(captured) = &mut state.captured else { return Err(GraphError::NotCaptured { call: "update" }.into()) };
        let program = &captured.program;
        let count = program.nodes().len();
        let mut changed: BTreeMap<u32, Work> = BTreeMap::new();
        let mut kept: Vec<&Arc<Block>> = Vec::new();
        let alignment = captured.port.info().place_alignment.max(1);
        for change in changes {
            match *change {
                GraphUpdate::Argument { node, argument, value } => {
                    let Some(found) = program.nodes().get(node) else {
                        return Err(GraphError::NoNode { node, count }.into());
                    };
                    let work = changed.entry(node as u32).or_insert_with(|| found.work.clone());
                    let operation = work.name().to_owned();
                    let refuse = |reason: String| GraphError::Update { node, operation, reason };
                    let Work::Launch { args, .. } = work else {
                        return Err(refuse("only kernels have arguments".to_owned()).into());
                    };
                    let given = args.len();
                    let Some(arg) = args.get_mut(argument) else {
                        return Err(refuse(format!("it has no argument {argument}, but {given} of them")).into());
                    };
                    match (&mut *arg, value) {
                        (Argument::Bytes(old), LaunchArg::Bytes(new)) if old.len() == new.len() => {
                            old.copy_from_slice(new);
                        }
                        (Argument::Bytes(old), LaunchArg::Bytes(new)) => {
                            return Err(refuse(format!(
                                "argument {argument} has {} bytes, not {}",
                                old.len(),
                                new.len()
                            ))
                            .into());
                        }
                        (Argument::Local(old), LaunchArg::Local(new)) => *old = new,
                        (Argument::Place { spot, len }, LaunchArg::Buffer(slice)) => {
                            let buffer = slice.buffer();
                            if !buffer.runtime().same(&self.0.runtime) {
                                return Err(Error::ForeignRuntime { what: "buffer" });
                            }
                            let Some(part) = slice.part()? else {
                                return Err(refuse("a buffer of no bytes can't be an argument".to_owned()).into());
                            };
                            let owner = &captured.lanes[found.lane as usize].1;
                            if !Arc::ptr_eq(&part.block.port, owner) {
                                let (given, wanted) = (buffer.device(), owner.device);
                                return Err(Error::ForeignDevice { what: "buffer", given, wanted });
                            }
                            if !slice.offset().is_multiple_of(alignment) {
                                let (what, offset) = ("kernel argument", slice.offset());
                                return Err(Error::Misaligned { what, offset, alignment });
                            }
                            (*spot, *len) = (Spot::of(&part), part.len);
                            kept.push(part.block);
                        }
                        _ => return Err(refuse(format!("argument {argument} is of another kind")).into()),
                    }
                }
                GraphUpdate::Buffer { old, new } => {
                    let (from, to) = blocks(self, old, new)?;
                    let mut used = false;
                    for node in 0..count as u32 {
                        let mut work = changed.get(&node).unwrap_or(&program.nodes()[node as usize].work).clone();
                        if replace(&mut work, from, to)? {
                            used = true;
                            changed.insert(node, work);
                        }
                    }
                    if !used {
                        return Err(GraphError::NotUsed.into());
                    }
                    kept.push(to);
                }
            }
        }
        if let Some((&node, work)) = changed.iter().find(|(_, work)| work.ends_overlap()) {
            let (operation, reason) = (work.name().to_owned(), "its source and destination would overlap".to_owned());
            return Err(GraphError::Update { node: node as usize, operation, reason }.into());
        }
        let mut again = false;
        if let Some(exec) = &captured.exec {
            for (&node, work) in &changed {
                match captured.port.update_node(exec, node, work) {
                    Ok(updated) => again |= !updated,
                    Err(error) => {
                        // Some nodes may be changed: the next replay makes it anew, of what it was.
                        let (old, last) = (captured.exec.take(), captured.replays.last());
                        captured.port.retire_graph(old, captured.pool, &[], last.as_ref());
                        return Err(error);
                    }
                }
            }
        }
        for block in kept {
            captured.kept.block(block, false);
        }
        for (node, work) in changed {
            if let Some(place) = captured.program.work_mut(node) {
                *place = work;
            }
        }
        // The new blocks don't know yet where replays go.
        captured.seen.clear();
        if again {
            let exec = captured.port.instantiate(&captured.program, &captured.lanes)?;
            let old = captured.exec.replace(exec);
            let last = captured.replays.last();
            captured.port.retire_graph(old, captured.pool, &[], last.as_ref());
        }
        Ok(())
    }
}

/// The blocks of two buffers, if one can stand in for the other.
fn blocks<'a>(graph: &Graph, old: &'a Buffer, new: &'a Buffer) -> Result<(&'a Arc<Block>, &'a Arc<Block>)> {
    if !new.runtime().same(&graph.0.runtime) || !old.runtime().same(&graph.0.runtime) {
        return Err(Error::ForeignRuntime { what: "buffer" });
    }
    if old.device() != new.device() {
        return Err(Error::ForeignDevice { what: "buffer", given: new.device(), wanted: old.device() });
    }
    match (old.block(), new.block()) {
        (Some(old), Some(new)) => Ok((old, new)),
        _ => Err(GraphError::NotUsed.into()),
    }
}

/// Replaces each use of a block; says whether there was one.
fn replace(work: &mut Work, from: &Arc<Block>, to: &Arc<Block>) -> Result<bool> {
    let mut used = false;
    for (spot, len) in work.spots() {
        if spot.block == super::work::name_of(from) {
            let start = spot.place.offset - from.start();
            let end = start + len;
            let part = to.part(start..end)?;
            *spot = Spot::of(&part);
            used = true;
        }
    }
    Ok(used)
}
