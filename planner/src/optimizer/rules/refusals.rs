//! Rules that refuse every rewrite. These rules exist so that `WHY NOT` can report the reason.

use forebay_udfs::image::ImageCall;

use super::conditions::{over_decoding, unpinned};
use super::rule::{Site, Verdict};
use crate::optimizer::arena::Arena;
use crate::optimizer::spec::{OpKind, OpSpec};

/// The reason why a rule must not rewrite two operators of certain kinds.
struct RuleRefusal {
    rule: &'static str,
    /// True if the rule matches the upper operator, which is the first argument, and the lower
    /// operator.
    matches: fn(&OpSpec, &OpSpec) -> bool,
    why: &'static str,
}

const REFUSALS: [RuleRefusal; 5] = [
    RuleRefusal {
        rule: "filter-past-take",
        matches: |p, t| p.kind.is_filter() && matches!(t.kind, OpKind::Take { .. }),
        why: "TAKE would take other rows",
    },
    RuleRefusal {
        rule: "filter-past-take",
        matches: |p, t| p.kind.is_filter() && matches!(t.kind, OpKind::Limit { .. }),
        why: "LIMIT would keep other rows",
    },
    RuleRefusal {
        rule: "filter-past-take",
        matches: |p, t| p.kind.is_filter() && matches!(t.kind, OpKind::Batch { .. }),
        why: "batches would hold other rows",
    },
    RuleRefusal {
        rule: "crop-into-decode",
        matches: |f, d| {
            let call = over_decoding(f, d).map(|(call, _)| call);
            matches!(call, Some(ImageCall::Crop(_) | ImageCall::CenterCrop(..)))
        },
        why: "decoding needs no rewrite: it yields only the pixels that the crop reads",
    },
    RuleRefusal {
        rule: "resize-into-decode",
        matches: |f, d| {
            let call = over_decoding(f, d).map(|(call, _)| call);
            matches!(
                call,
                Some(ImageCall::Resize(..) | ImageCall::ResizeShortest(..))
            )
        },
        why: "no decoder scales while it decodes",
    },
];

/// The reason why the rule `rule` refuses the operators of `site`; `None` if the rule does not
/// match these operators.
fn refusal(arena: &Arena, site: Site, rule: &str) -> Option<&'static str> {
    let (above, below) = (arena.spec(site.outer), arena.spec(site.inner));
    let found = REFUSALS
        .iter()
        .find(|r| r.rule == rule && (r.matches)(above, below));
    found.map(|refusal| refusal.why)
}

/// Refuses to move a filter below a TAKE, LIMIT or BATCH, which would then count other rows.
pub(super) fn filter_past_take(arena: &mut Arena, site: Site) -> Option<Verdict> {
    refusal(arena, site, "filter-past-take").map(Err)
}

/// Refuses to replace decoding and a crop: the program of both decodes only the part that the crop
/// reads, where the decoder of the format can.
pub(super) fn crop_into_decode(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let unable = Err(refusal(arena, site, "crop-into-decode")?);
    Some(unpinned(arena.spec(site.outer), arena.spec(site.inner)).and(unable))
}

/// Refuses to replace decoding and a resize by decoding to another size.
pub(super) fn resize_into_decode(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let unable = Err(refusal(arena, site, "resize-into-decode")?);
    Some(unpinned(arena.spec(site.outer), arena.spec(site.inner)).and(unable))
}
