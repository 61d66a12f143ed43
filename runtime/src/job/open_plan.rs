//! Open plans: a row plan opened over its data, with the fragments that compute its rows and its membership.

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
    /// Fragment that computes the membership of rows.
    pub reader: Arc<FragmentReader>,
    /// True if random draws decide, so that each epoch has different rows.
    pub is_random: bool,
    /// A call in the membership plan that is not declared deterministic, if there is one.
    pub volatile: Option<String>,
}

/// An opened row plan.
#[derive(Debug)]
pub(crate) struct OpenPlan {
    /// The stored rows.
    pub data: Arc<StoredData>,
    /// Fragment that computes the output.
    pub reader: Arc<FragmentReader>,
    /// Fragment that decides which rows exist and how they are grouped; `None` if each stored row
    /// gives exactly one row and the rows' contents do not affect their groups.
    pub membership: Option<Membership>,
    /// True if a stored row may give several rows.
    pub multiplies: bool,
    /// The MIX, if the plan has one.
    pub mixed: Option<Mixed>,
    /// The data of the right sides of lookups, in evaluation order.
    lookups: Vec<Arc<StoredData>>,
}

/// The MIX of a pipeline.
#[derive(Debug)]
pub(crate) struct Mixed {
    /// Weights of the inputs, and the rule for the end of an epoch.
    pub mix: Mix,
    /// For each input, the occurrences of the scans whose rows it gives.
    pub scans: Vec<BTreeSet<u32>>,
    /// Fragment that decides which rows the inputs give; `None` if each stored row gives exactly
    /// one row.
    pub inputs: Option<Arc<FragmentReader>>,
    /// True if an operator above the MIX drops rows.
    pub drops: bool,
}

/// The tables of a plan's lookups in evaluation order, and the data that they were read from.
pub(super) type RightSides = (Vec<Arc<LookupTable>>, Vec<Arc<StoredData>>);

impl OpenPlan {
    /// Opens a plan without limits over the rows of `ranges`, by scan.
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

    /// Iterates over the data that defines the stream: the plan's own, then that of the right sides
    /// of lookups.
    pub(crate) fn all_data(&self) -> impl Iterator<Item = &Arc<StoredData>> {
        std::iter::once(&self.data).chain(&self.lookups)
    }

    /// Returns the hash of the data: the snapshot's [hash](Snapshot::hash), or with lookups, BLAKE3
    /// over this hash and those of the right sides' snapshots.
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
            // `tables` is in evaluation order, and the inputs of the MIX are evaluated first, so
            // their tables are the first ones.
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
