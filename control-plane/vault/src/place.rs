//! The place of a record: what its ciphertext is bound to.

/// Tenant, table and row of a record; authenticated with its ciphertext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// Org that the record belongs to.
    pub tenant: &'a str,
    /// Kind of the record, for example `linked_accounts`.
    pub table: &'a str,
    /// Key of the record in its table.
    pub row: &'a str,
}

impl Place<'_> {
    /// Returns the parts, each after its length, so that no two places have the same bytes.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let parts = [self.tenant, self.table, self.row];
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + size_of::<u64>()).sum());
        for part in parts {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_places_have_the_same_bytes() {
        let place = |tenant, table, row| Place { tenant, table, row }.to_bytes();
        let all = [
            place("a", "b", "c"),
            place("ab", "", "c"),
            place("a", "bc", ""),
            place("", "ab", "c"),
            place("", "", "abc"),
            place("a", "", "bc"),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all.iter().skip(at + 1).all(|other| other != one), "{at}");
        }
    }
}
