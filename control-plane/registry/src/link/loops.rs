//! Delegates whose primitive may need them again.
//!
//! Owns the graph of delegates and of the primitives that answer for them. Keeps true: the graph is walked twice,
//! however many delegates there are, so a large set of files takes linear time.

use std::collections::{HashMap, HashSet};

use super::delegate::target;
use super::{Declaration, Index};

/// Returns the files of delegates to which their own primitive may delegate again, directly or through others.
pub(crate) fn looping_delegates<'a>(declared: &'a [Declaration<'a>], index: &Index<'a>) -> HashSet<&'a str> {
    let graph = Graph::of(declared, index);
    let mut components: HashMap<usize, Vec<usize>> = HashMap::new();
    for (node, component) in graph.components().into_iter().enumerate() {
        components.entry(component).or_default().push(node);
    }
    // A delegate and its primitive are different nodes, so a loop has two or more.
    let loops = components.into_values().filter(|nodes| nodes.len() > 1).flatten();
    loops.filter_map(|node| declared.get(node)).map(|item| item.file).collect()
}

/// A graph with two nodes for each declared primitive: first all as delegates, then all as primitives that answer for
/// delegates.
struct Graph {
    next: Vec<Vec<usize>>,
    previous: Vec<Vec<usize>>,
}

impl Graph {
    fn of<'a>(declared: &'a [Declaration<'a>], index: &Index<'a>) -> Graph {
        let count = declared.len();
        let numbers: HashMap<&str, usize> =
            declared.iter().enumerate().map(|(number, item)| (item.file, number)).collect();
        let number = |item: &Declaration<'_>| numbers.get(item.file).copied();
        let mut graph = Graph { next: vec![Vec::new(); 2 * count], previous: vec![Vec::new(); 2 * count] };
        for item in declared {
            let Some(own) = number(item) else { continue };
            let answers = target(item.spec).and_then(|target| index.resolve_listed(item.folder, target));
            if let Some(answers) = answers.and_then(number) {
                graph.add(own, count + answers);
            }
            for dependency in &item.spec.dependencies.delegations {
                if let Some(delegate) = index.resolve(item.folder, &dependency.id).and_then(number) {
                    graph.add(count + own, delegate);
                }
            }
        }
        graph
    }

    fn add(&mut self, from: usize, to: usize) {
        if let (Some(next), Some(previous)) = (self.next.get_mut(from), self.previous.get_mut(to)) {
            next.push(to);
            previous.push(from);
        }
    }

    /// Returns the strongly connected component of each node, named by one of its nodes (Kosaraju and Sharir).
    fn components(&self) -> Vec<usize> {
        let mut finished = Vec::with_capacity(self.next.len());
        let mut seen = vec![false; self.next.len()];
        for node in 0..self.next.len() {
            walk(&self.next, node, &mut seen, |left| finished.push(left));
        }
        let mut components = vec![0; self.next.len()];
        let mut seen = vec![false; self.next.len()];
        for node in finished.into_iter().rev() {
            walk(&self.previous, node, &mut seen, |left| {
                if let Some(component) = components.get_mut(left) {
                    *component = node;
                }
            });
        }
        components
    }
}

/// Visits the unseen nodes reachable from `start`, each after those it reaches. It is not recursive: a chain of
/// delegates may be as long as there are files.
fn walk(edges: &[Vec<usize>], start: usize, seen: &mut [bool], mut leave: impl FnMut(usize)) {
    let mut enter = |node: usize| seen.get_mut(node).is_some_and(|seen| !std::mem::replace(seen, true));
    if !enter(start) {
        return;
    }
    let mut open = vec![(start, 0)];
    while let Some((node, edge)) = open.last_mut() {
        let next = edges.get(*node).and_then(|edges| edges.get(*edge)).copied();
        *edge += 1;
        match next {
            Some(next) => {
                if enter(next) {
                    open.push((next, 0));
                }
            }
            None => {
                leave(*node);
                open.pop();
            }
        }
    }
}
