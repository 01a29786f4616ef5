//! The primitives that published servers declare, kept from one settlement to the next.
//!
//! Owns: finding servers that declare a primitive differently. A write is checked against the other servers before it
//! is stored; this check is for servers that an older version or another process stored. Keeps true: of conflicting
//! servers the one that was stored first stays; as long as there is no conflict, only changed servers are checked
//! again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use asp_proto::snapshot::Primitive;
use asp_registry::CompiledServer;

use super::fault::{Fault, NOT_SERVED};
use super::servers::server_fault;

/// The primitives of servers that can be published together, and nothing of other servers.
#[derive(Default)]
pub(super) struct Declarations {
    /// Servers by name.
    servers: HashMap<String, Arc<CompiledServer>>,
    /// Servers that declare a primitive, by its id and version, with its index in their list. All declare it alike.
    primitives: HashMap<String, Vec<(Arc<CompiledServer>, usize)>>,
    /// Whether a server was left out, so that the order of all servers matters.
    has_conflicts: bool,
    /// Number of servers whose primitives were checked.
    #[cfg(test)]
    looks: usize,
}

impl Declarations {
    /// Returns the servers without conflicts, given each with its revision. If several declare a primitive differently,
    /// the one that was stored first stays.
    pub(super) fn without_conflicts(
        &mut self,
        mut servers: Vec<(u64, Arc<CompiledServer>)>,
        faults: &mut Vec<Fault>,
    ) -> Vec<Arc<CompiledServer>> {
        servers.sort_by(|(a, one), (b, other)| (a, &one.server.name).cmp(&(b, &other.server.name)));
        let servers: Vec<_> = servers.into_iter().map(|(_, server)| server).collect();
        match !self.has_conflicts && self.take_changes(&servers) {
            true => servers,
            false => self.take_all(servers, faults),
        }
    }

    /// Takes the servers that changed if there was no conflict so far; returns false if one appears.
    fn take_changes(&mut self, servers: &[Arc<CompiledServer>]) -> bool {
        let is_known = |server: &Arc<CompiledServer>| {
            self.servers.get(&server.server.name).is_some_and(|known| Arc::ptr_eq(known, server))
        };
        let changed: Vec<&Arc<CompiledServer>> = servers.iter().filter(|server| !is_known(server)).collect();
        let stored: HashSet<&str> = servers.iter().map(|server| server.server.name.as_str()).collect();
        let gone = self.servers.keys().filter(|name| !stored.contains(name.as_str())).cloned();
        let replaced = changed.iter().map(|server| server.server.name.clone());
        for name in gone.chain(replaced).collect::<Vec<_>>() {
            self.remove(&name);
        }
        for server in changed {
            if self.conflict(server).is_some() {
                return false;
            }
            self.add(server);
        }
        true
    }

    /// Takes all servers in order, except those in conflict with an earlier one.
    fn take_all(
        &mut self,
        mut servers: Vec<Arc<CompiledServer>>,
        faults: &mut Vec<Fault>,
    ) -> Vec<Arc<CompiledServer>> {
        self.servers.clear();
        self.primitives.clear();
        self.has_conflicts = false;
        servers.retain(|server| {
            let Some(primitive) = self.conflict(server) else {
                self.add(server);
                return true;
            };
            let fault = format!("an older server has the primitive {} with other content", primitive.id);
            faults.push(server_fault(&server.server.name, &fault, NOT_SERVED));
            self.has_conflicts = true;
            false
        });
        servers
    }

    /// Finds a primitive that a server taken before declares differently.
    fn conflict<'s>(&mut self, server: &'s CompiledServer) -> Option<&'s Primitive> {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        server.primitives.iter().find(|primitive| {
            let known = self.primitives.get(&key(primitive)).and_then(|known| known.first());
            let known = known.and_then(|(server, place)| server.primitives.get(*place));
            known.is_some_and(|known| known != *primitive)
        })
    }

    fn add(&mut self, server: &Arc<CompiledServer>) {
        for (place, primitive) in server.primitives.iter().enumerate() {
            self.primitives.entry(key(primitive)).or_default().push((Arc::clone(server), place));
        }
        self.servers.insert(server.server.name.clone(), Arc::clone(server));
    }

    fn remove(&mut self, name: &str) {
        let Some(server) = self.servers.remove(name) else { return };
        for primitive in &server.primitives {
            let key = key(primitive);
            let Some(known) = self.primitives.get_mut(&key) else { continue };
            known.retain(|(other, _)| !Arc::ptr_eq(other, &server));
            if known.is_empty() {
                self.primitives.remove(&key);
            }
        }
    }
}

/// Names have no control characters.
fn key(primitive: &Primitive) -> String {
    format!("{}\u{0}{}", primitive.id, primitive.version)
}

#[cfg(test)]
mod tests {
    use asp_proto::snapshot::{EdgeServer, Server};

    use super::*;

    fn server(name: &str, primitives: &[(&str, &str)]) -> Arc<CompiledServer> {
        let primitive = |(id, summary): &(&str, &str)| Primitive {
            id: (*id).into(),
            version: "1.0.0".into(),
            summary: (*summary).into(),
            ..Primitive::default()
        };
        Arc::new(CompiledServer {
            server: Server { name: name.into(), ..Server::default() },
            primitives: primitives.iter().map(primitive).collect(),
            edge: EdgeServer::default(),
            offered_to: Vec::new(),
            agent_card: String::new(),
            content_hash: String::new(),
            files: Vec::new(),
        })
    }

    /// Names of those that stay, and of those that are left out.
    fn settled(
        declared: &mut Declarations,
        servers: &[(u64, &Arc<CompiledServer>)],
    ) -> (Vec<String>, Vec<String>) {
        let mut faults = Vec::new();
        let servers = servers.iter().map(|(revision, server)| (*revision, Arc::clone(server))).collect();
        let kept = declared.without_conflicts(servers, &mut faults);
        let names = kept.iter().map(|server| server.server.name.clone()).collect();
        (names, faults.into_iter().map(|fault| fault.name).collect())
    }

    #[test]
    fn servers_that_did_not_change_are_not_looked_at_again() {
        let mut declared = Declarations::default();
        let [one, two, three] =
            ["one", "two", "three"].map(|name| server(name, &[("shared", "S."), (name, "O.")]));
        let all = [(1, &one), (2, &two), (3, &three)];
        let none = Vec::<String>::new();
        assert_eq!(
            settled(&mut declared, &all),
            (["one", "two", "three"].map(str::to_owned).to_vec(), none.clone())
        );
        assert_eq!(declared.looks, 3);
        let changed = server("two", &[("shared", "S."), ("two", "Other.")]);
        let after = [(1, &one), (4, &changed), (3, &three)];
        assert_eq!(
            settled(&mut declared, &after),
            (["one", "three", "two"].map(str::to_owned).to_vec(), none.clone())
        );
        assert_eq!(declared.looks, 4);
        assert_eq!(settled(&mut declared, &[(1, &one)]), (vec!["one".to_owned()], none));
        assert_eq!((declared.looks, declared.primitives.len()), (4, 2), "what is gone is forgotten");
    }

    #[test]
    fn of_servers_that_conflict_the_older_one_stays_whichever_changed() {
        let mut declared = Declarations::default();
        let [one, two] = ["one", "two"].map(|name| server(name, &[("shared", "S.")]));
        let other = server("one", &[("shared", "Other.")]);
        settled(&mut declared, &[(1, &one), (2, &two)]);
        let left_out = |stays: &str, goes: &str| (vec![stays.to_owned()], vec![goes.to_owned()]);
        assert_eq!(settled(&mut declared, &[(3, &other), (2, &two)]), left_out("two", "one"));
        assert_eq!(settled(&mut declared, &[(1, &other), (2, &two)]), left_out("one", "two"));
        let (kept, faults) = settled(&mut declared, &[(4, &one), (2, &two)]);
        assert_eq!((kept.len(), faults.len()), (2, 0), "the conflict is over");
        let looks = declared.looks;
        settled(&mut declared, &[(4, &one), (2, &two)]);
        assert_eq!(declared.looks, looks);
    }
}
