//! One line about a server and an org: offered, switched on, allowed. For the first of these that does not hold, it names who
//! can change it and the command.

/// The state of a server for an org.
#[derive(Clone, Copy)]
pub struct ServerAccess<'a> {
    pub server: &'a str,
    pub org: &'a str,
    pub offered: bool,
    pub on: bool,
    pub allowed: CallPermission<'a>,
}

/// Whether a call is allowed.
#[derive(Clone, Copy)]
pub enum CallPermission<'a> {
    Yes,
    /// Command with which the org's admin allows it.
    No(&'a str),
    /// Conditions on arguments, in words, because of which these arguments are refused.
    NotIf(&'a str),
    /// Depends on the caller and the primitive.
    Depends,
}

/// Formats the line.
pub fn line(access: &ServerAccess<'_>) -> String {
    let ServerAccess { server, org, offered, on, allowed } = *access;
    let word = |holds: bool| if holds { "yes" } else { "no" };
    let mut said = format!("{server} for {org}: offered {}", word(offered));
    if !offered {
        return format!(
            "{said}. An admin of {server} or of the platform offers it: `asp servers offer {server} --to {org}`"
        );
    }
    said = format!("{said}, switched on {}", word(on));
    if !on {
        return format!("{said}. An admin of {org} switches it on: `asp policy {org} --expose {server}`");
    }
    match allowed {
        CallPermission::Yes => format!("{said}, allowed yes"),
        CallPermission::No(command) => {
            format!("{said}, allowed no. An admin of {org} allows it: `{command}`")
        }
        CallPermission::NotIf(conditions) => {
            format!("{said}, allowed no with these arguments, which meet the condition {conditions}")
        }
        CallPermission::Depends => {
            format!(
                "{said}, allowed: depends on the caller and the primitive. Admins of {org} and of {server} see it \
                 with `asp explain --org {org} --server {server} --user NAME --primitive ID`"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_is_not_so_names_who_changes_it_and_how() {
        let of =
            |offered, on, allowed| line(&ServerAccess { server: "shop", org: "acme", offered, on, allowed });
        let not_offered = of(false, false, CallPermission::Depends);
        assert!(not_offered.starts_with("shop for acme: offered no. An admin of shop or of the platform"));
        assert!(not_offered.ends_with("`asp servers offer shop --to acme`"));
        let off = of(true, false, CallPermission::Depends);
        assert!(
            off.contains("offered yes, switched on no") && off.contains("`asp policy acme --expose shop`")
        );
        let denied = of(true, true, CallPermission::No("asp policy acme --allow shop.buy --user bob"));
        assert!(denied.ends_with(
            "allowed no. An admin of acme allows it: `asp policy acme --allow shop.buy --user bob`"
        ));
        let depends = of(true, true, CallPermission::Depends);
        assert!(
            depends.contains("`asp explain --org acme --server shop --user NAME --primitive ID`"),
            "{depends}"
        );
        assert_eq!(
            of(true, true, CallPermission::Yes),
            "shop for acme: offered yes, switched on yes, allowed yes"
        );
    }
}
