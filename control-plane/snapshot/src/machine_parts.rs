//! Keys and certificates of machines by org, the source of the machine index.

use std::collections::HashMap;
use std::sync::Arc;

use asp_proto::snapshot::{MachineCertificate, MachineKey};

use crate::machines::Machines;

/// Keys and certificates of one org.
struct OrgMachines {
    keys: Vec<MachineKey>,
    certificates: Vec<MachineCertificate>,
}

/// Keys and certificates of all orgs that have any.
#[derive(Clone, Default)]
pub(super) struct MachineParts {
    by_org: HashMap<Arc<str>, Arc<OrgMachines>>,
}

impl MachineParts {
    /// Replaces an org's keys and certificates. Returns whether they differ from the previous ones.
    pub(super) fn replace(
        &mut self,
        org: &str,
        keys: Vec<MachineKey>,
        certificates: Vec<MachineCertificate>,
    ) -> bool {
        if keys.is_empty() && certificates.is_empty() {
            return self.by_org.remove(org).is_some();
        }
        let is_same = |part: &Arc<OrgMachines>| part.keys == keys && part.certificates == certificates;
        if self.by_org.get(org).is_some_and(is_same) {
            return false;
        }
        self.by_org.insert(org.into(), Arc::new(OrgMachines { keys, certificates }));
        true
    }

    /// Whether the org has any key or certificate.
    #[cfg(test)]
    pub(super) fn has(&self, org: &str) -> bool {
        self.by_org.contains_key(org)
    }

    /// Checks the keys and certificates of one org, regardless of other orgs.
    pub(super) fn check(&self, org: &str) -> Result<(), String> {
        let Some(part) = self.by_org.get(org) else { return Ok(()) };
        Machines::new(part.keys.clone(), part.certificates.clone()).map(drop)
    }

    pub(super) fn index(&self) -> Result<Machines, String> {
        let all = || self.by_org.values();
        let keys = all().flat_map(|part| part.keys.iter().cloned()).collect();
        Machines::new(keys, all().flat_map(|part| part.certificates.iter().cloned()).collect())
    }
}
