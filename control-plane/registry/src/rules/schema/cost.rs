//! Cost of evaluating a schema, determined without evaluating it.
//!
//! Owns the references: they stay inside the schema, lead to a schema, and never lead back to the same value. Owns
//! the budget: expanded along its references a schema has at most [`MAX_EXPANDED`] subschemas, and a recursive one
//! evaluates each inner value once, so time stays linear in the input. (Twenty-eight nested `allOf` pairs, 1.8 KB of
//! text, take a validator seconds.)

use std::collections::HashMap;

use serde_json::Value;

use super::walk::{self, SchemaStep, Sub};
use super::{Faults, fault};
use crate::fault::FaultCode;

const MAX_EXPANDED: u64 = 10_000;
/// Maximum length of a chain of references and nesting; bounds the recursion here and in the validator.
const MAX_CHAIN: usize = 256;
/// Maximum number of distinct subschemas; together with the bound on the expansion it keeps the checks here linear.
const MAX_SUBSCHEMAS: usize = 5_000;
/// Maximum number of recursive properties and items of one schema; they are compared in pairs.
const MAX_RECURSIVE_EDGES: usize = 200;

pub(super) fn check(subschemas: &[Sub<'_>], faults: &mut Faults) {
    let before = faults.len();
    if subschemas.len() > MAX_SUBSCHEMAS {
        let message = format!("{} subschemas, the limit is {MAX_SUBSCHEMAS}", subschemas.len());
        faults.push(fault(FaultCode::SchemaBudget, "", message, "split or simplify the schema"));
        return;
    }
    let graph = Graph::new(subschemas, faults);
    if faults.len() > before {
        return;
    }
    if let Some(at) = graph.find_loop() {
        let hint = "let the reference pass through `properties` or `items`, or remove it";
        let message = "the schema refers to itself at the same value, so its evaluation never ends";
        faults.push(fault(FaultCode::SchemaLoop, at, message, hint));
        return;
    }
    let too_much = match graph.expanded() {
        None => Some(format!("a chain of references is longer than {MAX_CHAIN}")),
        Some(count) if count > MAX_EXPANDED => {
            Some(format!("expanded along its references the schema has more than {MAX_EXPANDED} parts"))
        }
        Some(_) => {
            graph.doubling().map(|at| format!("the recursion evaluates the same inner value twice, at {at}"))
        }
    };
    if let Some(message) = too_much {
        let hint = "simplify the schema: fewer nested allOf, anyOf and $ref";
        faults.push(fault(FaultCode::SchemaBudget, "", message, hint));
    }
}

struct Edge {
    step: SchemaStep,
    keyword: String,
    /// Name of the property for [`SchemaStep::Property`].
    name: String,
    target: usize,
}

struct Graph<'a> {
    subs: &'a [Sub<'a>],
    edges: Vec<Vec<Edge>>,
}

impl<'a> Graph<'a> {
    fn new(subs: &'a [Sub<'a>], faults: &mut Faults) -> Graph<'a> {
        let places: HashMap<&str, usize> =
            subs.iter().enumerate().map(|(index, sub)| (sub.pointer.as_str(), index)).collect();
        let anchors = anchors(subs);
        let mut edges = Vec::with_capacity(subs.len());
        for sub in subs {
            let mut out = Vec::new();
            for (relative, step, _) in walk::children(sub.schema) {
                if let Some(target) = places.get(format!("{}{relative}", sub.pointer).as_str()) {
                    let keyword = relative.split('/').nth(1).unwrap_or_default().to_string();
                    let name = relative.rsplit('/').next().unwrap_or_default().to_string();
                    out.push(Edge { step, keyword, name, target: *target });
                }
            }
            for keyword in ["$ref", "$dynamicRef"] {
                let Some(reference) = sub.schema.get(keyword) else { continue };
                let path = format!("{}/{keyword}", sub.pointer);
                match resolve(reference, &places, &anchors) {
                    Ok(target) => out.push(Edge {
                        step: SchemaStep::InPlace,
                        keyword: keyword.into(),
                        name: String::new(),
                        target,
                    }),
                    Err((code, message)) => {
                        let hint = "refer to a subschema of this schema as #/$defs/name";
                        faults.push(fault(code, &path, message, hint));
                    }
                }
            }
            edges.push(out);
        }
        Graph { subs, edges }
    }

    fn out(&self, node: usize) -> &[Edge] {
        self.edges.get(node).map_or(&[], Vec::as_slice)
    }

    fn in_place(&self, node: usize) -> impl Iterator<Item = usize> {
        self.out(node).iter().filter(|edge| edge.step == SchemaStep::InPlace).map(|edge| edge.target)
    }

    /// Returns a node from which in-place steps lead back to it.
    fn find_loop(&self) -> Option<&'a str> {
        // Iterative depth-first search; the second visit of a node closes it.
        let mut state = vec![0_u8; self.subs.len()];
        for start in 0..self.subs.len() {
            let mut stack = vec![(start, false)];
            while let Some((node, closing)) = stack.pop() {
                let Some(mark) = state.get_mut(node) else { continue };
                match (closing, *mark) {
                    (true, _) => *mark = 2,
                    (false, 0) => {
                        *mark = 1;
                        stack.push((node, true));
                        for target in self.in_place(node) {
                            if state.get(target) == Some(&1) {
                                return self.subs.get(target).map(|sub| sub.pointer.as_str());
                            }
                            stack.push((target, false));
                        }
                    }
                    _ => {}
                }
            }
        }
        None
    }

    /// Returns the number of subschemas of the largest schema with its references expanded; a recursion counts once.
    /// Unused definitions count as well, since the checks below visit them. Returns `None` if a chain is too long.
    fn expanded(&self) -> Option<u64> {
        let mut largest = 0;
        let mut counts = vec![None; self.subs.len()];
        let mut places = vec![None; self.subs.len()];
        for node in 0..self.subs.len() {
            largest = largest.max(self.count(node, 0, &mut counts)?);
            largest = largest.max(self.count_places(node, 0, &mut places)?);
        }
        Some(largest)
    }

    /// Returns the exact length of [`Graph::closure`]: in-place steps contain no loops.
    fn count_places(&self, node: usize, chain: usize, counts: &mut Vec<Option<u64>>) -> Option<u64> {
        if chain > MAX_CHAIN {
            return None;
        }
        if let Some(Some(count)) = counts.get(node) {
            return Some(*count);
        }
        let mut total = 1_u64;
        for target in self.in_place(node) {
            total = total.saturating_add(self.count_places(target, chain + 1, counts)?);
        }
        if let Some(slot) = counts.get_mut(node) {
            *slot = Some(total);
        }
        Some(total)
    }

    fn count(&self, node: usize, chain: usize, counts: &mut Vec<Option<u64>>) -> Option<u64> {
        if chain > MAX_CHAIN {
            return None;
        }
        if let Some(Some(count)) = counts.get(node) {
            return Some(*count);
        }
        // While a node is being counted, a recursion back to it counts as one.
        if let Some(slot) = counts.get_mut(node) {
            *slot = Some(1);
        }
        let mut total = 1_u64;
        for edge in self.out(node).iter().filter(|edge| edge.step != SchemaStep::Definition) {
            total = total.saturating_add(self.count(edge.target, chain + 1, counts)?);
        }
        if let Some(slot) = counts.get_mut(node) {
            *slot = Some(total);
        }
        Some(total)
    }

    /// Finds a recursive schema that evaluates an inner value more than once, which takes time exponential in the
    /// depth of the input.
    fn doubling(&self) -> Option<&'a str> {
        let groups = self.groups();
        let group = |node: usize| groups.get(node).copied();
        for (node, sub) in self.subs.iter().enumerate() {
            let mut inner: Vec<(usize, &Edge)> = Vec::new();
            for (position, place) in self.closure(node).into_iter().enumerate() {
                let edges = self.out(place).iter().filter(|edge| edge.is_inner());
                // An edge inside the group leads back to this schema.
                inner.extend(
                    edges.filter(|edge| group(edge.target) == group(node)).map(|edge| (position, edge)),
                );
                if inner.len() > MAX_RECURSIVE_EDGES {
                    return Some(&sub.pointer);
                }
            }
            for (index, one) in inner.iter().enumerate() {
                if inner.iter().skip(index + 1).any(|other| overlap(*one, *other)) {
                    return Some(&sub.pointer);
                }
            }
        }
        None
    }

    /// Returns the schemas that evaluate the same value as `node`, as often as each does. They are at most
    /// [`MAX_EXPANDED`], which was checked before.
    fn closure(&self, node: usize) -> Vec<usize> {
        let mut places = vec![node];
        let mut next = 0;
        while let Some(place) = places.get(next) {
            let inner: Vec<usize> = self.in_place(*place).collect();
            places.extend(inner);
            next += 1;
        }
        places
    }

    /// Returns the strongly connected group of each node (Kosaraju): two nodes of a group lead to each other. An edge
    /// of a node to itself stays in its group as well.
    fn groups(&self) -> Vec<usize> {
        let mut reverse = vec![Vec::new(); self.subs.len()];
        for (node, edges) in self.edges.iter().enumerate() {
            for edge in edges.iter().filter(|edge| edge.step != SchemaStep::Definition) {
                if let Some(back) = reverse.get_mut(edge.target) {
                    back.push(node);
                }
            }
        }
        let mut groups = vec![usize::MAX; self.subs.len()];
        for (number, start) in self.finish_order().into_iter().rev().enumerate() {
            let mut stack = vec![start];
            while let Some(node) = stack.pop() {
                match groups.get_mut(node) {
                    Some(group) if *group == usize::MAX => *group = number,
                    _ => continue,
                }
                stack.extend(reverse.get(node).into_iter().flatten());
            }
        }
        groups
    }

    /// Returns the nodes in the order in which a depth-first search leaves them.
    fn finish_order(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.subs.len());
        let mut seen = vec![false; self.subs.len()];
        for start in 0..self.subs.len() {
            let mut stack = vec![(start, false)];
            while let Some((node, leaving)) = stack.pop() {
                if leaving {
                    order.push(node);
                    continue;
                }
                match seen.get_mut(node) {
                    Some(seen) if !*seen => *seen = true,
                    _ => continue,
                }
                stack.push((node, true));
                let edges = self.out(node).iter().filter(|edge| edge.step != SchemaStep::Definition);
                stack.extend(edges.map(|edge| (edge.target, false)));
            }
        }
        order
    }
}

impl Edge {
    /// Whether it leads into the value: to a property or an item.
    fn is_inner(&self) -> bool {
        matches!(self.step, SchemaStep::Property | SchemaStep::OtherProperties | SchemaStep::Items)
    }
}

/// Whether two edges, each with the position of its schema, may evaluate the same inner value. In one schema
/// `properties` and `additionalProperties` share no property, nor `prefixItems` and `items` an item.
fn overlap((place, one): (usize, &Edge), (other_place, other): (usize, &Edge)) -> bool {
    let is_same_place = place == other_place;
    match (one.step, other.step) {
        (SchemaStep::Property, SchemaStep::Property) => one.name == other.name,
        (SchemaStep::Items, SchemaStep::Items) => {
            !(is_same_place && one.is_partition() && other.is_partition())
        }
        (
            SchemaStep::Property | SchemaStep::OtherProperties,
            SchemaStep::Property | SchemaStep::OtherProperties,
        ) => !(is_same_place && one.is_partition() && other.is_partition()),
        _ => false,
    }
}

impl Edge {
    /// Whether its keyword distributes the properties or items of one schema among subschemas.
    fn is_partition(&self) -> bool {
        matches!(self.keyword.as_str(), "properties" | "additionalProperties" | "prefixItems" | "items")
    }
}

fn anchors<'a>(subs: &[Sub<'a>]) -> HashMap<&'a str, usize> {
    let mut anchors = HashMap::new();
    for (index, sub) in subs.iter().enumerate() {
        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(name) = sub.schema.get(keyword).and_then(Value::as_str) {
                anchors.entry(name).or_insert(index);
            }
        }
    }
    anchors
}

fn resolve(
    reference: &Value,
    places: &HashMap<&str, usize>,
    anchors: &HashMap<&str, usize>,
) -> Result<usize, (FaultCode, String)> {
    let Some(text) = reference.as_str() else {
        return Err((FaultCode::BadSchema, "the reference is not a text".into()));
    };
    let shown = super::super::name::escape(text);
    let Some(fragment) = text.strip_prefix('#') else {
        return Err((FaultCode::SchemaRef, format!("`{shown}` leaves the schema")));
    };
    // A URI fragment is percent-decoded before it is read as a pointer (RFC 6901 section 6).
    let decoded = percent_encoding::percent_decode_str(fragment).decode_utf8();
    let place = match &decoded {
        Ok(pointer) if pointer.is_empty() || pointer.starts_with('/') => places.get(pointer.as_ref()),
        Ok(anchor) => anchors.get(anchor.as_ref()),
        Err(_) => None,
    };
    place.copied().ok_or_else(|| (FaultCode::BadSchema, format!("`{shown}` leads to no subschema")))
}
