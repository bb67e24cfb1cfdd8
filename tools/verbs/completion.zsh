#compdef gpumem
# zsh completion of gpumem, made by gpumem help --completion zsh
_gpumem_pids() {
	local -a pids
	pids=(${(f)"$(gpumem help --completion pids 2>/dev/null)"})
	pids=(${pids//$'\t'/:})
	_describe -t processes process pids
}
_gpumem() {
	local -a verbs
	verbs=(
@verbs@
	)
	if (( CURRENT == 2 )); then
		_describe -t verbs verb verbs
		return
	fi
	shift words
	(( CURRENT-- ))
	case $words[1] in
@arguments@
	esac
}
if [ "$funcstack[1]" = _gpumem ]; then
	_gpumem "$@"
else
	compdef _gpumem gpumem
fi
