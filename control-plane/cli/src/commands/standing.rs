//! One line about a server and an org: offered, switched on, allowed. It says of the first of these that does not hold who
//! can change it, and by which command.

/// The state of a server for an org.
#[derive(Clone, Copy)]
pub struct Standing<'a> {
    pub server: &'a str,
    pub org: &'a str,
    pub offered: bool,
    pub on: bool,
    /// `None`: it depends on who calls what.
    pub allowed: Option<bool>,
}

/// The line.
pub fn line(standing: &Standing<'_>) -> String {
    let Standing { server, org, offered, on, allowed } = *standing;
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
        Some(true) => format!("{said}, allowed yes"),
        Some(false) => {
            format!("{said}, allowed no. An admin of {org} allows it: `asp policy {org} --allow PRIMITIVE`")
        }
        None => format!("{said}, allowed: `asp explain` says it of a user and a primitive"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_is_not_so_names_who_changes_it_and_how() {
        let of = |offered, on, allowed| line(&Standing { server: "shop", org: "acme", offered, on, allowed });
        let not_offered = of(false, false, None);
        assert!(not_offered.starts_with("shop for acme: offered no. An admin of shop or of the platform"));
        assert!(not_offered.ends_with("`asp servers offer shop --to acme`"));
        let off = of(true, false, None);
        assert!(
            off.contains("offered yes, switched on no") && off.contains("`asp policy acme --expose shop`")
        );
        assert!(of(true, true, Some(false)).contains("allowed no. An admin of acme"));
        assert_eq!(of(true, true, Some(true)), "shop for acme: offered yes, switched on yes, allowed yes");
    }
}
