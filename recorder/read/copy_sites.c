/*
 * copy_sites.c - compute the bytes that each row of SITES (struct gm_site) had at the peak, and store them in @live
 * of the copy.
 *
 * Nothing that was read is trusted. Thread context: one thread for each copy.
 */
#include "recorder/read/copy_internal.h"

/* Is the peak now? Called before thread caches and completed frees are counted, because the writer compared the total
 * without them. */
static bool is_at_peak(const struct gm_domain *domain, bool pool)
{
	int64_t total = pool ? domain->pool.live_bytes :
			domain->stats.stat[GM_STAT_REQUESTED_BYTES][GM_POOL_ALL].current;

	return total > (int64_t)(domain->peak >> GM_SITE_NUMBER_BITS);
}

static int64_t at_peak(const struct gm_domain *domain, const struct gm_site *site, bool now)
{
	uint64_t number = site->saved & GM_SITE_NUMBER;

	if (number && number == (domain->peak & GM_SITE_NUMBER) && !now)
		return (int64_t)(site->saved >> GM_SITE_NUMBER_BITS);
	return site->live;
}

void gm_resolve_sites(struct gm_copy *copy, bool pools)
{
	bool now[GM_DOMAINS] = { false };

	for (unsigned int d = pools ? GM_DOMAIN_POOLS : 0; d < (pools ? GM_DOMAINS : GM_DOMAIN_POOLS); d++) {
		struct gm_domain *domain = gm_copy_domain(copy, d);

		now[d] = domain && is_at_peak(domain, pools);
		if (now[d])
			domain->peak_tsc = 0;
	}
	for (size_t i = 1; i < gm_copy_items(copy, GM_REGION_SITES); i++) {
		struct gm_site *site = gm_copy_site(copy, i);
		unsigned int d = site ? gm_site_domain(site) : 0;
		const struct gm_domain *domain = site ? gm_copy_domain(copy, d) : NULL;

		if (!domain || (d >= GM_DOMAIN_POOLS) != pools)
			continue;
		site->live = at_peak(domain, site, now[d]);
		if (site->live < 0) {
			site->live = 0;
			copy->damage++;
		}
	}
}

void gm_sites_begin_pools(struct gm_copy *copy)
{
	for (size_t i = 1; i < gm_copy_items(copy, GM_REGION_SITES); i++) {
		struct gm_site *site = gm_copy_site(copy, i);

		if (site && gm_site_domain(site) >= GM_DOMAIN_POOLS)
			site->live = 0;
	}
}

void gm_sites_add_line(struct gm_copy *copy, const struct gm_live *line)
{
	struct gm_site *site = gm_copy_site(copy, line->site);

	if (site && gm_site_domain(site) == line->domain)
		site->live = (int64_t)((uint64_t)site->live + line->size);
}
