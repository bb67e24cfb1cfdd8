# fish completion of gpumem, made by gpumem help --completion fish
complete -c gpumem -n __fish_use_subcommand -f
@verbs@
@options@
for verb in top snapshot ctl
	complete -c gpumem -n "__fish_seen_subcommand_from $verb" -f -a '(gpumem help --completion pids 2>/dev/null)'
end
complete -c gpumem -n '__fish_seen_subcommand_from top' -a all -d 'every process'
complete -c gpumem -n '__fish_seen_subcommand_from ctl; and not __fish_seen_subcommand_from history reset-peaks empty-cache memory-limit' -a 'history reset-peaks empty-cache memory-limit'
complete -c gpumem -n '__fish_seen_subcommand_from history' -a 'on off state'
complete -c gpumem -n '__fish_seen_subcommand_from memory-limit' -a none
complete -c gpumem -n '__fish_seen_subcommand_from run' -x -a '(__fish_complete_subcommand --fcs-skip=2)'
