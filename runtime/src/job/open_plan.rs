//! Open plans: row plans opened over their data, with the fragments that compute output rows and
//! membership.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use datafusion::common::Result;
use forebay_planner::rows::RowPlan;
use forebay_planner::rows::membership::{
    above_mix, arm_scans, is_keyed, is_one_to_one, is_random, membership, multiplies, volatile,
};
use forebay_planner::rows::mix::Mix;

use crate::fragment::lookup::LookupTable;
#[cfg(doc)]
use crate::order::Snapshot;
use crate::segment::{CachedPrefix, Env, FragmentReader, StoredData};

/// The part of a plan that decides which rows reach the output, and how they are grouped.
#[derive(Debug)]
pub(crate) struct Membership {
    /// Fragment that computes which rows reach the output.
    pub reader: Arc<FragmentReader>,
    /// True if random draws decide which rows reach the output, so that each epoch has different
    /// rows.
    pub is_random: bool,
    /// A function call in the membership plan that is not declared deterministic; `None` if there
    /// is no such call.
    pub volatile: Option<String>,
}

/// An opened row plan.
#[derive(Debug)]
pub(crate) struct OpenPlan {
    /// The stored rows.
    pub data: Arc<StoredData>,
    /// Fragment that computes the output.
    pub reader: Arc<FragmentReader>,
    /// Fragment that decides which rows reach the output and how they are grouped; `None` if each
    /// stored row gives exactly one output row and the grouping does not depend on the contents of
    /// rows.
    pub membership: Option<Membership>,
    /// True if a stored row may give several output rows.
    pub multiplies: bool,
    /// The MIX, if the plan has one.
    pub mixed: Option<Mixed>,
    /// The stored data of the right sides of lookups, in the order in which the lookups are
    /// evaluated.
    lookups: Vec<Arc<StoredData>>,
}

/// The MIX of a pipeline.
#[derive(Debug)]
pub(crate) struct Mixed {
    /// Weights of the inputs, and the rule for the end of an epoch.
    pub mix: Mix,
    /// For each input, the occurrence numbers of the input's scans.
    pub scans: Vec<BTreeSet<u32>>,
    /// Fragment that decides which rows the inputs yield; `None` if each stored row gives exactly
    /// one row of its input.
    pub inputs: Option<Arc<FragmentReader>>,
    /// True if an operator above the MIX drops rows.
    pub drops: bool,
}

/// The tables of a plan's lookups, in evaluation order, and the stored data from which the tables
/// were computed.
pub(super) type RightSides = (Vec<Arc<LookupTable>>, Vec<Arc<StoredData>>);

impl OpenPlan {
    /// Opens `plan`, which has no LIMIT, over the rows of `ranges`, by occurrence number of their
    /// scan.
    pub(crate) async fn over(
        plan: &RowPlan,
        ranges: &BTreeMap<u32, Range<u64>>,
        (tables, lookups): RightSides,
        env: &Env,
    ) -> Result<Self> {
        let data = Arc::new(StoredData::of_plan(plan, ranges)?);
        let cached = match &env.cache {
            Some(setup) => CachedPrefix::open(setup, plan, &data).await?,
            None => None,
        };
        let mut decides = None;
        if !is_one_to_one(plan) || is_keyed(plan) {
            let plan = membership(plan.clone())?;
            decides = Some(Membership {
                reader: Arc::new(FragmentReader::try_new(&plan, tables.clone(), None)?),
                is_random: is_random(&plan),
                volatile: volatile(&plan),
            });
        }
        Ok(Self {
            data,
            membership: decides,
            multiplies: multiplies(plan),
            mixed: Mixed::of(plan, &tables)?,
            reader: Arc::new(FragmentReader::try_new(plan, tables, cached)?),
            lookups,
        })
    }

    /// Iterates over the stored data that defines the stream: the data of the plan's scans, then
    /// the data of the right sides of lookups.
    pub(crate) fn all_data(&self) -> impl Iterator<Item = &Arc<StoredData>> {
        std::iter::once(&self.data).chain(&self.lookups)
    }

    /// Returns the hash of the data. Without lookups, this is the snapshot's
    /// [hash](Snapshot::hash). With lookups, it is the BLAKE3 hash of the hashes of this snapshot
    /// and of the right sides' snapshots.
    pub(crate) fn data_hash(&self) -> String {
        if self.lookups.is_empty() {
            return self.data.snapshot.hash();
        }
        let mut hasher = blake3::Hasher::new();
        for data in self.all_data() {
            hasher.update(data.snapshot.hash().as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }
}

impl Mixed {
    fn of(plan: &RowPlan, tables: &[Arc<LookupTable>]) -> Result<Option<Self>> {
        let (Some(node), Some(mix)) = (plan.mixed(), plan.mix()) else {
            return Ok(None);
        };
        let mut inputs = None;
        if !is_one_to_one(node) {
            let plan = membership(node.clone())?;
            // `tables` is in evaluation order, and the inputs of the MIX are evaluated before the
            // plan above the MIX, so the tables of the inputs come first.
            let reader = FragmentReader::try_new(&plan, tables.to_vec(), None)?;
            inputs = Some(Arc::new(reader));
        }
        Ok(Some(Self {
            mix: mix.clone(),
            scans: arm_scans(plan),
            inputs,
            drops: !is_one_to_one(&above_mix(plan.clone())?),
        }))
    }
}
