//! Names of groups of points: the parts that differ, and the common parts once.

/// Splits group names into the parts that differ, per group, and the common parts. A single group has no
/// differing part.
pub fn told_apart(names: &[&str]) -> (Vec<String>, String) {
    let parts: Vec<Vec<&str>> = names.iter().map(|name| name.split(", ").collect()).collect();
    let Some((first, others)) = parts.split_first().filter(|(_, others)| !others.is_empty()) else {
        return (vec![String::new(); names.len()], names.concat());
    };
    let same = |part: &&str| others.iter().all(|other| other.contains(part));
    let common: Vec<&str> = first.iter().copied().filter(same).collect();
    // in a part such as `h100_sxm link.alpha_us=5`, keep only the words that differ
    let words = |part: &str| part.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let apart = |part: &str, at: usize| -> String {
        let of = |other: &Vec<&str>| other.get(at).map(|part| words(part)).unwrap_or_default();
        let all: Vec<Vec<String>> = parts.iter().map(of).collect();
        let own: Vec<String> = words(part);
        let telling: Vec<String> =
            own.iter().filter(|word| !all.iter().all(|words| words.contains(word))).cloned().collect();
        match part.starts_with("prompt ") || part.starts_with("output ") || telling.is_empty() {
            true => part.to_owned(),
            false => telling.join(" "),
        }
    };
    let names = parts.iter().map(|parts| {
        let own = parts.iter().enumerate().filter(|(_, part)| !common.contains(part));
        own.map(|(at, part)| apart(part, at)).collect::<Vec<_>>().join(", ")
    });
    (names.collect(), common.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_varies_is_said_of_each_group_and_the_rest_once() {
        let name =
            |prompt: u32, set: &str| format!("8b bf16, prompt {prompt}, h100_sxm{set}, sim native");
        let names = [name(64, " link.alpha_us=5"), name(64, " link.alpha_us=20")];
        let (apart, common) = told_apart(&[&names[0], &names[1]]);
        assert_eq!(apart, ["link.alpha_us=5", "link.alpha_us=20"]);
        assert_eq!(common, "8b bf16, prompt 64, sim native");
        let names = [name(64, ""), name(128, "")];
        let (apart, common) = told_apart(&[&names[0], &names[1]]);
        assert_eq!(apart, ["prompt 64", "prompt 128"]);
        assert_eq!(common, "8b bf16, h100_sxm, sim native");
        assert_eq!(told_apart(&[&names[0]]), (vec![String::new()], names[0].clone()));
        assert_eq!(told_apart(&[]), (Vec::new(), String::new()));
    }
}
